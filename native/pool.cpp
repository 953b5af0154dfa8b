#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata {
namespace {

constexpr int spins = 4000;  // of a pause each, some tens of microseconds: longer than the gap between two ops

std::atomic<bool> forked{false};
thread_local bool inside_job = false;

void note_forks() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked.store(true); }); });
}

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
    return cpus;
}

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// The first allowed CPU of every physical core; without a topology to read, every CPU.
std::vector<int> cores() {
    std::vector<int> first;
    std::set<std::string> seen;
    for (int cpu : allowed_cpus()) {
        const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        std::string core = first_line(topology + "thread_siblings_list");
        if (core.empty()) core = std::to_string(cpu);
        if (seen.insert(core).second) first.push_back(cpu);
    }
    return first;
}

// Whole CPUs of the control group's quota, rounded up; 0: no limit. Versions 2 and 1 of the interface.
int quota() {
    std::istringstream two(first_line("/sys/fs/cgroup/cpu.max"));
    std::string limit;
    double period = 0;
    if (two >> limit >> period && limit != "max" && period > 0)
        return int((std::stod(limit) + period - 1) / period);
    std::istringstream used(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
    std::istringstream of(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
    double micro = 0;
    if (used >> micro && of >> period && micro > 0 && period > 0) return int((micro + period - 1) / period);
    return 0;
}

// Whether the machine's cores are ours to choose from: no affinity mask and no quota.
bool owns_machine() { return long(allowed_cpus().size()) == sysconf(_SC_NPROCESSORS_ONLN) && quota() == 0; }

void pin(int cpu) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
    (void)cpu;
#endif
}

}  // namespace

int available_cores() {
    const int found = int(cores().size()), limit = quota();
    const int usable = limit > 0 && limit < found ? limit : found;
    return usable > 0 ? usable : 1;
}

Denormals::Denormals() : before_(0) {
#if defined(__x86_64__)
    before_ = _mm_getcsr();
    _mm_setcsr(before_ & ~0x8040u);
#endif
}

Denormals::~Denormals() {
#if defined(__x86_64__)
    _mm_setcsr(before_);
#endif
}

Pool::Pool(int threads) : threads_(threads > 0 ? threads : available_cores()) {
    if (threads_ == 1) return;
    note_forks();
    const std::vector<int> places = cores();
    // The calling thread is Python's and stays unpinned: programs that it starts would inherit the pin. The system
    // puts it on the core that is left over.
    pinned_ = owns_machine() && std::size_t(threads_) <= places.size();
    workers_.reserve(std::size_t(threads_ - 1));
    for (int thread = 1; thread < threads_; ++thread)
        workers_.emplace_back(&Pool::work, this, thread, pinned_ ? places[std::size_t(thread)] : -1);
}

Pool::~Pool() {
    if (forked.load()) {
        for (std::thread& worker : workers_) worker.detach();
        return;
    }
    {
        std::lock_guard<std::mutex> lock(parking_);
        over_.store(true);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::run(Call call, void* body) {
    if (inside_job || forked.load(std::memory_order_relaxed)) {
        for (int thread = 0; thread < threads_; ++thread) call(body, thread, threads_);
        return;
    }
    std::lock_guard<std::mutex> one(one_job_);
    call_ = call;
    body_ = body;
    running_.store(threads_ - 1);
    job_.fetch_add(1);
    if (parked_.load() > 0) {
        { std::lock_guard<std::mutex> lock(parking_); }
        wake_.notify_all();
    }
    inside_job = true;
    call(body, 0, threads_);
    inside_job = false;
    for (int i = 0; running_.load(std::memory_order_acquire) > 0; ++i) {
        if (i < spins)
            pause_briefly();
        else
            std::this_thread::yield();  // more threads than free cores: let the worker have this one
    }
}

// Wait for a job after number `seen`: spin, then park. False when the pool is over.
bool Pool::await(unsigned seen) {
    for (int i = 0; i < spins; ++i) {
        if (job_.load(std::memory_order_acquire) != seen) return true;
        if (over_.load(std::memory_order_relaxed)) return false;
        pause_briefly();
    }
    std::unique_lock<std::mutex> lock(parking_);
    parked_.fetch_add(1);
    wake_.wait(lock, [&] { return job_.load() != seen || over_.load(); });
    parked_.fetch_sub(1);
    return job_.load() != seen;
}

void Pool::work(int thread, int cpu) {
    if (cpu >= 0) pin(cpu);
    const Denormals ieee;
    inside_job = true;
    for (unsigned seen = 0; await(seen);) {
        seen = job_.load();
        call_(body_, thread, threads_);
        running_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace strata
