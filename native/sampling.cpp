#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels.h"

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

std::size_t argmax(const float* logits, std::size_t n) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (std::isnan(logits[i])) return i;
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

std::size_t draw(const float* logits, std::size_t n, const Sampling& sampling) {
    if (!(sampling.temperature > 0.0f)) return argmax(logits, n);
    // A token with weight 0 is never drawn and comes after all others: only the rest is put in order.
    std::vector<float> exponentials(n);
    std::vector<Candidate> candidates;
    const float top = logits[argmax(logits, n)] / sampling.temperature;
    for (std::size_t i = 0; i < n; ++i) exponentials[i] = logits[i] / sampling.temperature;
    kernels().window.exp_minus(exponentials.data(), top, exponentials.data(), n);
    for (std::size_t i = 0; i < n; ++i)
        if (weight_of(exponentials[i]) > 0) candidates.push_back({logits[i], std::uint32_t(i)});
    if (sampling.top_k > 0 && sampling.top_k < candidates.size()) {
        std::nth_element(candidates.begin(), candidates.begin() + std::ptrdiff_t(sampling.top_k), candidates.end(), before);
        candidates.resize(sampling.top_k);
    }
    std::sort(candidates.begin(), candidates.end(), before);
    std::vector<std::uint64_t> sums;
    std::uint64_t sum = 0;
    for (const Candidate& c : candidates) {
        const std::uint64_t weight = weight_of(exponentials[c.id]);
        if (weight < sampling.min_weight) break;
        sums.push_back(sum += weight);
    }
    if (sampling.top_p < 1.0) {
        const std::uint64_t need = std::uint64_t(std::ceil(sampling.top_p * double(sum)));
        const auto end = std::lower_bound(sums.begin(), sums.end(), need);
        sums.resize(std::size_t(end - sums.begin()) + 1);
        sum = sums.back();
    }
    const std::uint64_t counter[4] = {sampling.position, 0, 0, 0};
    const std::uint64_t drawn = multiply(philox(sampling.seed, sampling.choice, counter), sum).high;
    return candidates[std::size_t(std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin())].id;
}

}  // namespace strata
