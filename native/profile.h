// Where a window's time goes, kept only when asked for.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>

namespace strata {

enum class Op { embed, ngram, hyper, dense, convolution, delta, attention, indexer, router, experts, head, mtp, count };

constexpr const char* op_names[] = {"embed",     "ngram",   "hyper-connections", "dense products", "convolution", "delta rule",
                                    "attention", "indexer", "router",            "experts",        "head",        "mtp"};

struct Profile {
    bool on = false;
    std::array<std::uint64_t, std::size_t(Op::count)> nanoseconds{}, products{};  // the second: that part of the first
    Op current = Op::embed;
    std::uint64_t windows = 0, total = 0;

    static std::uint64_t now() {
        return std::uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch()).count());
    }
};

// Adds the time it lives to one op.
class Timed {
public:
    Timed(Profile& profile, Op op) : profile_(profile), before_(profile.current), start_(profile.on ? Profile::now() : 0) {
        profile.current = op;
    }
    ~Timed() {
        if (profile_.on) profile_.nanoseconds[std::size_t(profile_.current)] += Profile::now() - start_;
        profile_.current = before_;
    }
    Timed(const Timed&) = delete;

private:
    Profile& profile_;
    Op before_;
    std::uint64_t start_;
};

// Adds the time it lives to the products of the op that is being timed.
class TimedProducts {
public:
    explicit TimedProducts(Profile& profile) : profile_(profile), start_(profile.on ? Profile::now() : 0) {}
    ~TimedProducts() {
        if (profile_.on) profile_.products[std::size_t(profile_.current)] += Profile::now() - start_;
    }
    TimedProducts(const TimedProducts&) = delete;

private:
    Profile& profile_;
    std::uint64_t start_;
};

}  // namespace strata
