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
    std::uint64_t weight = 0;
};
bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// round(exp(l - l_max) * 2^30); an infinite largest logit makes it NaN, which numpy turns into 2^63.
std::uint64_t weight_of(float exponential) {
    const float scaled = std::nearbyint(exponential * 1073741824.0f);
    return std::isnan(scaled) ? std::uint64_t(1) << 63 : std::uint64_t(scaled);
}

// The `count` first of all tokens, in no order: what is not above the least of `count` others is passed by.
std::vector<Candidate> first_of(const float* logits, std::size_t n, std::size_t count) {
    std::vector<Candidate> found;
    const auto cut = [&] {
        std::nth_element(found.begin(), found.begin() + std::ptrdiff_t(count - 1), found.end(), before);
        found.resize(count);
    };
    bool full = false;
    float least = 0.0f;
    for (std::size_t i = 0; i < n; ++i) {
        if (full && !(logits[i] > least)) continue;
        found.push_back({logits[i], std::uint32_t(i)});
        if (found.size() < 2 * count) continue;
        cut();
        least = found[count - 1].logit;
        full = true;
    }
    if (found.size() > count) cut();
    return found;
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
    std::vector<Candidate> all;
    if (sampling.top_k > 0 && sampling.top_k < n) {
        all = first_of(logits, n, sampling.top_k);
    } else {
        all.resize(n);
        for (std::size_t i = 0; i < n; ++i) all[i] = {logits[i], std::uint32_t(i)};
    }
    std::vector<float> exponentials(all.size());
    float top = all[0].logit;
    for (std::size_t i = 0; i < all.size(); ++i) {
        top = std::max(top, all[i].logit);
        exponentials[i] = all[i].logit / sampling.temperature;
    }
    kernels().window.exp_minus(exponentials.data(), top / sampling.temperature, exponentials.data(), all.size());
    // A token with weight 0 is never drawn and comes after all others: only the rest is put in order.
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].weight = weight_of(exponentials[i]);
        if (all[i].weight > 0) candidates.push_back(all[i]);
    }
    std::sort(candidates.begin(), candidates.end(), before);
    std::vector<std::uint64_t> sums;
    std::uint64_t sum = 0;
    for (const Candidate& c : candidates) {
        if (c.weight < sampling.min_weight) break;
        sums.push_back(sum += c.weight);
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
