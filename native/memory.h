// Aligned memory for ops: buffers that only grow, and blocks that several owners share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace strata {

constexpr std::size_t cache_line = 64;

inline std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

struct Free {
    void operator()(void* p) const { std::free(p); }
};
template <typename T>
using Aligned = std::unique_ptr<T[], Free>;

// Uninitialized memory at a cache line.
template <typename T>
Aligned<T> aligned(std::size_t count) {
    void* p = std::aligned_alloc(cache_line, round_up(count * sizeof(T) + 1, cache_line));
    if (p == nullptr) throw std::bad_alloc();
    return Aligned<T>(static_cast<T*>(p));
}

// Memory of one op of a window, kept from window to window. Contents are lost when it grows.
class Scratch {
public:
    // `count` items of T. With `poison` every byte becomes 0xFF (a NaN), so that what an op leaves out shows.
    template <typename T>
    T* get(std::size_t count) {
        const std::size_t need = count * sizeof(T);
        if (need > bytes_) {
            memory_ = aligned<std::uint8_t>(need);
            bytes_ = need;
        }
        if (poison) std::memset(memory_.get(), 0xFF, need);
        return reinterpret_cast<T*>(memory_.get());
    }

    // What the last `get` gave.
    void* current() const { return memory_.get(); }

    static bool poison;

private:
    Aligned<std::uint8_t> memory_;
    std::size_t bytes_ = 0;
};

}  // namespace strata
