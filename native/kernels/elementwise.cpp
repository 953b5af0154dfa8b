// What is done element by element: activations, mixes of few rows, convolutions, rope, the caches' roundings.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

void silu_share(float* x, std::size_t n, float share) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        store_up_to(x + i, silu_of(div(load_up_to(x + i, some), all_floats(share))), some);
    });
}

void inject_weights(float* x, std::size_t n, float share) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        const Floats weight = sigmoid_of(div(load_up_to(x + i, some), all_floats(share)));
        store_up_to(x + i, mul(all_floats(2.0f), weight), some);
    });
}

void silu_times(const float* gate, const float* up, float* y, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        store_up_to(y + i, mul(silu_of(load_up_to(gate + i, some)), load_up_to(up + i, some)), some);
    });
}

void sigmoid(float* x, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) { store_up_to(x + i, sigmoid_of(load_up_to(x + i, some)), some); });
}

void sigmoid_times(const float* x, const float* gate, float* y, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        store_up_to(y + i, mul(load_up_to(x + i, some), sigmoid_of(load_up_to(gate + i, some))), some);
    });
}

void exp_minus(const float* x, float minus, float* y, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        store_up_to(y + i, exp_of(sub(load_up_to(x + i, some), all_floats(minus))), some);
    });
}

std::size_t argmax_one_by_one(const float* x, std::size_t n) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (x[i] != x[i]) return i;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

std::size_t argmax(const float* x, std::size_t n) {
    constexpr std::size_t part = 32 * lanes;  // the place is looked for in one part only
    const Floats zero = zero_floats();
    Floats odd = zero;  // NaN where one was seen, or an infinity: then all is looked at one by one
    std::size_t found = 0;
    float best = -__builtin_inff();
    for (std::size_t first = 0; first + part <= n; first += part) {
        Floats a = all_floats(best), b = a;
        for (std::size_t i = first; i < first + part; i += 2 * lanes) {
            const Floats v = load_floats(x + i), w = load_floats(x + i + lanes);
            a = larger(v, a);
            b = larger(w, b);
            odd = add(odd, mul(add(mul(v, zero), w), zero));
        }
        float tops[lanes];
        store_floats(tops, larger(a, b));
        for (const float top : tops)
            if (top > best) best = top, found = first;
    }
    float seen[lanes];
    store_floats(seen, odd);
    for (const float one : seen)
        if (one != one) return argmax_one_by_one(x, n);
    const std::size_t rest = n / part * part, last = found + part < n ? found + part : n;
    std::size_t at = found + argmax_one_by_one(x + found, last - found);
    if (rest == n) return at;
    const std::size_t end = rest + argmax_one_by_one(x + rest, n - rest);
    return x[end] > x[at] || x[end] != x[end] ? end : at;
}

std::uint64_t weigh(const float* x, float divisor, float minus, float* y, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        const Floats scaled = div(load_up_to(x + i, some), all_floats(divisor));
        store_up_to(y + i, exp_of(sub(scaled, all_floats(minus))), some);
    });
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float scaled = y[i] * 1073741824.0f, rounded = (scaled + 8388608.0f) - 8388608.0f;
        sum += static_cast<std::int32_t>(scaled < 8388608.0f ? rounded : scaled);  // above, it is whole
    }
    return static_cast<std::uint64_t>(sum);
}

// log(1 + y) of a finite y >= 0.
float log1p(float y) {
    const float u = 1.0f + y, lost = (y - (u - 1.0f)) / u;
    std::int32_t bits;
    __builtin_memcpy(&bits, &u, 4);
    const std::int32_t exponent = (bits - 0x3F3504F3) >> 23;
    bits -= static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent) << 23);
    float mantissa;
    __builtin_memcpy(&mantissa, &bits, 4);
    const float s = (mantissa - 1.0f) / (mantissa + 1.0f), z = s * s;
    float p = float(1.0 / 9);
    p = p * z + float(1.0 / 7);
    p = p * z + float(1.0 / 5);
    p = p * z + float(1.0 / 3);
    const float log_mantissa = (s + s) + ((s + s) * z) * p, e = float(exponent);
    return e * 0.693359375f + ((e * -2.12194440e-4f + log_mantissa) + lost);
}

float softplus(float x) {
    if (x > 20.0f) return x;
    return x != x ? x : log1p(exp_of(x));
}

void decay(const float* alpha, const float* dt, const float* a, float* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = exp_of(a[i] * softplus(alpha[i] + dt[i]));
}

void mix_streams(const float* logits, const float* flat, float* y, std::size_t streams, std::size_t hidden) {
    const Floats share = all_floats(float(streams));
    each_vector(hidden, [&](std::size_t i, std::size_t some) {
        Floats sum = zero_floats();
        for (std::size_t s = 0; s < streams; ++s) {
            const std::size_t at = s * hidden + i;
            sum = add(sum, mul(sigmoid_of(load_up_to(logits + at, some)), load_up_to(flat + at, some)));
        }
        store_up_to(y + i, div(sum, share), some);
    });
}

void inject(float* x, const float* output, const float* weights, std::size_t streams, std::size_t hidden) {
    each_vector(hidden, [&](std::size_t i, std::size_t some) {
        const Floats fresh = load_up_to(output + i, some);
        for (std::size_t s = 0; s < streams; ++s) {
            float* at = x + s * hidden + i;
            store_up_to(at, add(load_up_to(at, some), mul(fresh, all_floats(weights[s]))), some);
        }
    });
}

void conv_silu(const float* const* rows, std::size_t taps, const float* weight, float* y, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        Floats sum = zero_floats();
        for (std::size_t tap = 0; tap < taps; ++tap)
            sum = add(sum, mul(load_up_to(rows[tap] + i, some), load_up_to(weight + tap * n + i, some)));
        store_up_to(y + i, silu_of(sum), some);
    });
}

void mix_experts(const float* const* rows, const float* weights, std::size_t used, const float* shared, float gate,
                 float* y, std::size_t n) {
    const Floats share = all_floats(sigmoid_of(gate));
    each_vector(n, [&](std::size_t i, std::size_t some) {
        Floats sum = zero_floats();
        for (std::size_t e = 0; e < used; ++e) sum = add(sum, mul(all_floats(weights[e]), load_up_to(rows[e] + i, some)));
        store_up_to(y + i, add(sum, mul(share, load_up_to(shared + i, some))), some);
    });
}

void rope(float* x, const float* cos, const float* sin, std::size_t half) {
    each_vector(half, [&](std::size_t i, std::size_t some) {
        const Floats c = load_up_to(cos + i, some), s = load_up_to(sin + i, some);
        const Floats a = load_up_to(x + i, some), b = load_up_to(x + half + i, some);
        store_up_to(x + i, sub(mul(a, c), mul(b, s)), some);
        store_up_to(x + half + i, add(mul(b, c), mul(a, s)), some);
    });
}

void round_row(const float* x, std::uint8_t* y, std::size_t n, int format) {
    if (format == 0) {
        __builtin_memcpy(y, x, n * 4);
        return;
    }
    each_vector(n, [&](std::size_t i, std::size_t some) {
        std::uint8_t bits[32];
        const Floats v = load_up_to(x + i, some);
        if (format == 30)
            store_bfloats(bits, v);
        else
            store_halves(bits, v);
        __builtin_memcpy(y + 2 * i, bits, 2 * some);
    });
}

void widen_row(const std::uint8_t* x, float* y, std::size_t n, int format) {
    if (format == 0) {
        __builtin_memcpy(y, x, n * 4);
        return;
    }
    each_vector(n, [&](std::size_t i, std::size_t some) {
        std::uint8_t bits[32] = {};
        __builtin_memcpy(bits, x + 2 * i, 2 * some);
        store_up_to(y + i, format == 30 ? bfloats_at(bits) : halves_at(bits), some);
    });
}

void pool_keys(const float* rows, std::size_t count, float* y, std::size_t n) {
    const Floats share = all_floats(float(count));
    each_vector(n, [&](std::size_t i, std::size_t some) {
        Floats sum = zero_floats();
        for (std::size_t r = 0; r < count; ++r) sum = add(sum, load_up_to(rows + r * n + i, some));
        store_up_to(y + i, div(sum, share), some);
    });
}

void ngram_gate(float g, const float* value, float* u, std::size_t n) {
    const float magnitude = g < 0.0f ? -g : g, root = __builtin_sqrtf(magnitude < 1e-6f ? 1e-6f : magnitude);
    const Floats gate = all_floats(sigmoid_of(g > 0.0f ? root : g < 0.0f ? -root : 0.0f));
    each_vector(n, [&](std::size_t i, std::size_t some) { store_up_to(u + i, mul(gate, load_up_to(value + i, some)), some); });
}

void add_ngram(float* x, const float* u, const float* s, std::size_t n) {
    each_vector(n, [&](std::size_t i, std::size_t some) {
        store_up_to(x + i, add(load_up_to(x + i, some), add(load_up_to(u + i, some), load_up_to(s + i, some))), some);
    });
}

}  // namespace

void fill_elementwise(Kernels& k) {
    WindowKernels& w = k.window;
    w.silu_share = silu_share;
    w.inject_weights = inject_weights;
    w.silu_times = silu_times;
    w.sigmoid = sigmoid;
    w.sigmoid_times = sigmoid_times;
    w.exp_minus = exp_minus;
    w.argmax = argmax;
    w.weigh = weigh;
    w.decay = decay;
    w.mix_streams = mix_streams;
    w.inject = inject;
    w.conv_silu = conv_silu;
    w.mix_experts = mix_experts;
    w.rope = rope;
    w.round_row = round_row;
    w.widen_row = widen_row;
    w.pool_keys = pool_keys;
    w.ngram_gate = ngram_gate;
    w.add_ngram = add_ngram;
}

}  // namespace STRATA_ISA
}  // namespace strata
