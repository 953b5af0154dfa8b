// A pool of threads owned by the extension. Work is split by thread number alone, so the split is the same for the same
// number of threads, and no split changes a bit: threads never share a sum.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace strata {

// Physical cores that this process may use: its affinity mask, one thread a core, and the quota of its control group.
int available_cores();

// The part [begin, end) of `count` items of thread `thread` of `threads`; cuts lie at multiples of `align`.
struct Part {
    std::size_t begin, end;
};
inline Part part_of(std::size_t count, int thread, int threads, std::size_t align = 1) {
    const std::size_t units = (count + align - 1) / align, t = std::size_t(thread), all = std::size_t(threads);
    const std::size_t begin = units * t / all * align, end = units * (t + 1) / all * align;
    return {begin < count ? begin : count, end < count ? end : count};
}

class Pool {
public:
    // `threads` at least 1, the calling thread counted; 0: every physical core that is available.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return threads_; }
    bool pinned() const { return pinned_; }

    // Run f(thread, threads) once for every thread number and return when all are done. f must not throw. A call from
    // inside f, and any call in a forked child (which has no workers), runs all the parts here, one after the other.
    template <typename F>
    void each(F&& f) {
        if (threads_ == 1) {
            f(0, 1);
            return;
        }
        using Body = std::remove_reference_t<F>;
        run([](void* body, int thread, int threads) { (*static_cast<Body*>(body))(thread, threads); },
            const_cast<void*>(static_cast<const void*>(&f)));
    }

    // f(item) for every item of [0, count), in contiguous parts.
    template <typename F>
    void items(std::size_t count, F&& f) {
        each([&](int thread, int threads) {
            const Part part = part_of(count, thread, threads);
            for (std::size_t i = part.begin; i < part.end; ++i) f(i);
        });
    }

private:
    using Call = void (*)(void*, int, int);

    void run(Call call, void* body);
    void work(int thread, int cpu);
    bool await(unsigned seen);

    int threads_;
    bool pinned_ = false;
    std::vector<std::thread> workers_;
    std::mutex one_job_;  // two Python threads may call at once: jobs queue here
    std::mutex parking_;
    std::condition_variable wake_;
    Call call_ = nullptr;
    void* body_ = nullptr;
    alignas(64) std::atomic<unsigned> job_{0};  // counts jobs; odd steps are not used for anything else
    alignas(64) std::atomic<int> running_{0};
    alignas(64) std::atomic<int> parked_{0};
    std::atomic<bool> over_{false};
};

// IEEE denormals in this thread while it lives: FTZ and DAZ off, as before afterwards.
class Denormals {
public:
    Denormals();
    ~Denormals();

private:
    unsigned before_;
};

}  // namespace strata
