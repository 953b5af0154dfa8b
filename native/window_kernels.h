// The kernels of a window that are no products: an entry of the Kernels table each, compiled once an instruction set.
// They work on one row, head or span of a row, never allocate, and any number of threads may run them on other rows.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// Part of one head's gated delta rule: columns [first, last) of its state, over all rows of one lane.
struct DeltaWork {
    const float* from;  // (Dk, Dv); state before the rows
    float* to;          // state after `replayed` and `committed` rows; may be `from`; null: not wanted
    std::size_t dk, dv, first, last;

    struct Rows {  // of one head; strides in floats
        const float *q, *k, *v, *decay, *beta;
        std::size_t q_stride, k_stride, v_stride, gate_stride;
    };
    Rows replay;  // q is not read
    std::size_t replayed;
    Rows rows;
    std::size_t committed, count;
    float* out;  // row t at out + t * out_stride
    std::size_t out_stride;
    float* scratch;  // delta_scratch(dk)
};
constexpr std::size_t delta_columns = 32;  // columns are worked on in blocks of this many
constexpr std::size_t delta_scratch(std::size_t dk) { return (dk + 2) * delta_columns; }

// Attention of the query heads that share a key head, over keys in ascending position (the selected ones, or all).
struct AttendWork {
    const float* q;  // (heads, dim)
    std::size_t heads, dim;
    float scale;
    int kv_format;  // ggml type of the rows: 0 F32, 30 BF16, 1 F16
    // Block b of 64 keys by rank (the last may be short): its rows of k and v, one after the other.
    struct Keys {
        const std::uint8_t *k, *v;
        std::size_t count;
    };
    float* top;       // (heads): running maximum, sum and weighted values of the partial result
    float* total;
    float* weighted;  // (heads, dim)
    float* scores;    // (heads, 64)
    float* memory;    // attend_memory(heads)
};
constexpr std::size_t attend_block = 64, attend_partial = 1024;
constexpr std::size_t attend_memory(std::size_t heads) { return (heads + 15) / 16 * 16 + attend_block * 16; }

struct WindowKernels {
    // y = rms_norm(x) * gamma over each `group` of n values; gamma has n.
    void (*rms_norm)(const float* x, const float* gamma, float* y, std::size_t n, std::size_t group, float eps);
    // y = l2_norm(x), then times scale (1: exactly the norm).
    void (*l2_norm)(const float* x, float* y, std::size_t n, float scale);
    // y = rms_norm(x) * gamma * silu(gate) or sigmoid(gate).
    void (*gated_norm)(const float* x, const float* gate, const float* gamma, float* y, std::size_t n, float eps, bool silu);

    void (*silu_share)(float* x, std::size_t n, float share);                              // x = silu(x / share)
    void (*inject_weights)(float* x, std::size_t n, float share);                          // x = 2 * sigmoid(x / share)
    void (*silu_times)(const float* gate, const float* up, float* y, std::size_t n);       // y = silu(gate) * up
    void (*sigmoid)(float* x, std::size_t n);
    // y = x * sigmoid(gate) of one head; y may be x.
    void (*sigmoid_times)(const float* x, const float* gate, float* y, std::size_t n);
    void (*decay)(const float* alpha, const float* dt, const float* a, float* y, std::size_t n);  // exp(a*softplus(alpha+dt))
    void (*exp_minus)(const float* x, float minus, float* y, std::size_t n);               // y = exp(x - minus)
    // The index of the largest value, the lowest among equals; that of the first NaN if there is one.
    std::size_t (*argmax)(const float* x, std::size_t n);
    // y = exp(x / divisor - minus), at most 1; the sum of round(y * 2^30).
    std::uint64_t (*weigh)(const float* x, float divisor, float minus, float* y, std::size_t n);

    // y[d] = (sum over streams of sigmoid(logit) * flat, in order from +0) / streams.
    void (*mix_streams)(const float* logits, const float* flat, float* y, std::size_t streams, std::size_t hidden);
    // Each stream += output * its weight.
    void (*inject)(float* x, const float* output, const float* weights, std::size_t streams, std::size_t hidden);
    // y = silu(sum of rows[tap] * weight[tap], oldest first from +0); weight (taps, n).
    void (*conv_silu)(const float* const* rows, std::size_t taps, const float* weight, float* y, std::size_t n);
    // y = (sum of weight * row in rank order from +0) + sigmoid(gate) * shared.
    void (*mix_experts)(const float* const* rows, const float* weights, std::size_t used, const float* shared, float gate,
                        float* y, std::size_t n);
    // Rotate the first 2 * half values in place.
    void (*rope)(float* x, const float* cos, const float* sin, std::size_t half);
    // n values rounded to the caches' type (format 0 F32, 30 BF16, 1 F16), and back.
    void (*round_row)(const float* x, std::uint8_t* y, std::size_t n, int format);
    void (*widen_row)(const std::uint8_t* x, float* y, std::size_t n, int format);
    // y = (sum of `count` rows, oldest first from +0) / count.
    void (*pool_keys)(const float* rows, std::size_t count, float* y, std::size_t n);

    // Sum over lanes of x * y: the lane sum of docs/arithmetic.md, section 2.
    float (*lane_dot)(const float* x, const float* y, std::size_t n);
    // u = gate * value, gate = sigmoid(sign(g) * sqrt(max(|g|, 1e-6))).
    void (*ngram_gate)(float g, const float* value, float* u, std::size_t n);
    // x = x + (u + s)
    void (*add_ngram)(float* x, const float* u, const float* s, std::size_t n);

    void (*delta_rule)(const DeltaWork& work);
    // Start a partial result; add a block of keys to it; merge an earlier partial result (a) with this one, in a;
    // out = weighted / total.
    void (*attend_start)(const AttendWork& work);
    void (*attend_block)(const AttendWork& work, const AttendWork::Keys& keys);
    void (*attend_merge)(float* top, float* total, float* weighted, const AttendWork& work);
    void (*attend_finish)(const float* total, const float* weighted, float* out, std::size_t heads, std::size_t dim);
};

}  // namespace strata
