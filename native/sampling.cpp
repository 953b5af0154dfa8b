#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace strata {
namespace {

constexpr std::uint64_t multipliers[2] = {0xD2E7470EE14C6C93, 0xCA5A826395121157};
constexpr std::uint64_t weyl[2] = {0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B};

struct Product {
    std::uint64_t high, low;
};
Product multiply(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide(a) * b;
    return {std::uint64_t(product >> 64), std::uint64_t(product)};
}

struct Candidate {
    float logit;
    std::uint32_t id;
};
bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// round(exp(l - l_max) * 2^30); an infinite largest logit makes it NaN, which numpy turns into 2^63.
std::uint64_t weight_of(float exponential) {
    const float scaled = std::nearbyint(exponential * 1073741824.0f);
    return std::isnan(scaled) ? std::uint64_t(1) << 63 : std::uint64_t(scaled);
}

// The `count` first of all tokens, by index: what is not above the least of `count` others is passed by.
std::vector<Candidate> first_of(const float* logits, std::size_t n, std::size_t count) {
    std::vector<Candidate> found;
    float least = 0.0f;
    bool full = false;
    const auto cut = [&] {
        std::nth_element(found.begin(), found.begin() + std::ptrdiff_t(count - 1), found.end(), before);
        found.resize(count);
        least = found[count - 1].logit;
        full = true;
    };
    for (std::size_t i = 0; i < n; ++i) {
        if (full && !(logits[i] > least)) continue;
        found.push_back({logits[i], std::uint32_t(i)});
        if (found.size() == 2 * count) cut();
    }
    if (found.size() > count) cut();
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    return found;
}

// The tokens that may be drawn, by (logit, lower index first), put in order as far as they are asked for: most draws end
// among the first few. A token with weight 0 is never drawn and comes after all others.
class Ranked {
public:
    Ranked(const float* logits, const float* exponentials, std::size_t n, float top, float temperature)
        : logits_(logits), exponentials_(exponentials), n_(n), top_(top), reach_(4.0f * temperature) {}

    bool has(std::size_t rank) {
        while (rank >= found_.size() && !all_) find_more();
        return rank < found_.size();
    }
    // Of a rank that `has` found.
    std::uint64_t weight(std::size_t rank) { return has(rank) ? weight_of(exponentials_[found_[rank].id]) : 0; }
    std::size_t id(std::size_t rank) { return has(rank) ? found_[rank].id : 0; }

private:
    // Those from the last limit down to a lower one.
    void find_more() {
        const float above = limit_, below = top_ - reach_;
        all_ = !(reach_ < 1000.0f) || !std::isfinite(below);
        reach_ *= 4.0f;
        const std::ptrdiff_t sorted = std::ptrdiff_t(found_.size());
        for (std::size_t i = 0; i < n_; ++i) {
            if (!all_ && !(logits_[i] > below)) continue;
            if (sorted > 0 && logits_[i] > above) continue;
            if (weight_of(exponentials_[i]) > 0) found_.push_back({logits_[i], std::uint32_t(i)});
        }
        limit_ = below;
        std::sort(found_.begin() + sorted, found_.end(), before);
    }

    const float *logits_, *exponentials_;
    std::size_t n_;
    float top_, reach_, limit_ = 0.0f;
    bool all_ = false;
    std::vector<Candidate> found_;
};

}  // namespace

std::uint64_t philox(std::uint64_t key0, std::uint64_t key1, const std::uint64_t counter[4]) {
    std::uint64_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    for (int round = 0; round < 10; ++round) {
        const Product first = multiply(multipliers[0], a), second = multiply(multipliers[1], c);
        a = second.high ^ b ^ key0;
        b = second.low;
        c = first.high ^ d ^ key1;
        d = first.low;
        key0 += weyl[0];
        key1 += weyl[1];
    }
    return a;
}

bool has_nan(const float* logits, std::size_t n) {
    bool found = false;
    for (std::size_t i = 0; i < n; ++i) found |= logits[i] != logits[i];
    return found;
}

std::size_t argmax(const float* logits, std::size_t n) { return kernels().window.argmax(logits, n); }

std::size_t draw(const float* logits, std::size_t n, const Sampling& sampling) {
    if (!(sampling.temperature > 0.0f)) return argmax(logits, n);
    if (sampling.top_k > 0 && sampling.top_k < n) {
        const std::vector<Candidate> found = first_of(logits, n, sampling.top_k);
        std::vector<float> few;
        for (const Candidate& c : found) few.push_back(c.logit);
        Sampling among = sampling;
        among.top_k = 0;
        return found[draw(few.data(), few.size(), among)].id;
    }
    const float top = logits[argmax(logits, n)];
    const Aligned<float> exponentials = aligned<float>(n);
    std::uint64_t sum = kernels().window.weigh(logits, sampling.temperature, top / sampling.temperature, exponentials.get(), n);
    Ranked ranked(logits, exponentials.get(), n, top, sampling.temperature);
    if (!std::isfinite(top) || sampling.min_weight > 0) {
        std::size_t kept = 0;
        for (sum = 0; ranked.has(kept) && ranked.weight(kept) >= sampling.min_weight; ++kept) sum += ranked.weight(kept);
    }
    if (sampling.top_p < 1.0) {
        const std::uint64_t need = std::uint64_t(std::ceil(sampling.top_p * double(sum)));
        std::uint64_t reached = 0;
        for (std::size_t i = 0; reached < need && ranked.has(i); ++i) reached += ranked.weight(i);
        sum = std::max(reached, ranked.weight(0));
    }
    const std::uint64_t counter[4] = {sampling.position, 0, 0, 0};
    const std::uint64_t drawn = multiply(philox(sampling.seed, sampling.choice, counter), sum).high;
    std::size_t at = 0;
    for (std::uint64_t reached = ranked.weight(0); reached <= drawn && ranked.has(at + 1);) reached += ranked.weight(++at);
    return ranked.id(at);
}

}  // namespace strata
