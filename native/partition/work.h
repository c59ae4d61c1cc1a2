// What steps share: threads, the caller's stop flag, hashes for ties, and lists that come out in node order.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "export.h"
#include "graph.h"

namespace grinnder {

struct Stopped {};

// splitmix64: decides ties and draws, so that neither threads nor arrival do.
inline uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// A team of threads that takes numbered chunks; what a chunk does may depend on its number, never on the thread.
class Work {
public:
    Work(int threads, grinnder_partition_progress *progress);
    ~Work();
    Work(const Work &) = delete;
    Work &operator=(const Work &) = delete;

    int threads() const { return static_cast<int>(helpers_.size()) + 1; }

    // Calls run(chunk, thread) for each chunk and returns when all are done. Throws what a chunk threw, or Stopped.
    // A barrier costs more than a little work does, so few chunks are done by the caller alone.
    void chunks(int64_t count, const std::function<void(int64_t, int)> &run);

    // Calls run(first, last, thread) for ranges of `step` numbers that cover 0 .. n - 1.
    template <class Run>
    void ranges(int64_t n, int64_t step, Run run) {
        chunks((n + step - 1) / step,
               [&](int64_t c, int thread) { run(c * step, std::min(n, (c + 1) * step), thread); });
    }

    // Throws Stopped once the caller wants it. For loops that one thread does alone: look every few thousand steps.
    void look() const {
        if (stopping()) throw Stopped{};
    }
    bool stopping() const { return __atomic_load_n(&progress_->stop, __ATOMIC_RELAXED) != 0; }

    void phase(int phase, int level = 0);
    void round();
    void alpha(double alpha);
    void rebuilt();

private:
    void help(int thread);
    void take(int thread);

    grinnder_partition_progress *progress_;
    std::vector<std::thread> helpers_;
    std::mutex mutex_;
    std::condition_variable begun_, ended_;
    const std::function<void(int64_t, int)> *run_ = nullptr;
    std::atomic<int64_t> next_{0};
    int64_t count_ = 0;
    uint64_t turn_ = 0;
    int busy_ = 0;
    bool closing_ = false;
    std::exception_ptr error_;
};

constexpr int64_t CHUNK = 4096;

// The lists that chunks made, one after another: the order of nodes, whatever the threads did.
template <class T>
void join(std::vector<std::vector<T>> &lists, std::vector<T> &all) {
    size_t total = 0;
    for (auto &list : lists) total += list.size();
    all.clear();
    all.reserve(total);
    for (auto &list : lists) {
        all.insert(all.end(), list.begin(), list.end());
        std::vector<T>().swap(list);
    }
}

// propose(v, list, thread) for each node; `all` has the proposals in node order.
template <class T, class Propose>
void propose_all(Work &work, int32_t n, std::vector<T> &all, Propose propose) {
    std::vector<std::vector<T>> lists((n + CHUNK - 1) / CHUNK);
    work.ranges(n, CHUNK, [&](int64_t first, int64_t last, int thread) {
        auto &list = lists[first / CHUNK];
        for (int64_t v = first; v < last; ++v) propose(static_cast<int32_t>(v), list, thread);
    });
    join(lists, all);
}

constexpr int SUBROUNDS = 8;

// The same for about one node in SUBROUNDS. What moves together cannot see each other move, so few may; they come in
// blocks of neighbours in memory, because single ones would miss the cache at every step.
template <class T, class Propose>
void propose_some(Work &work, int32_t n, int turn, uint64_t salt, std::vector<T> &all, Propose propose) {
    const int shift = n > 200000 ? 5 : 0;
    const int64_t blocks = ((static_cast<int64_t>(n) - 1) >> shift) + 1;
    const int64_t step = std::max<int64_t>(1, (CHUNK >> shift) * SUBROUNDS);
    std::vector<std::vector<T>> lists((blocks + step - 1) / step);
    work.ranges(blocks, step, [&](int64_t first, int64_t last, int thread) {
        auto &list = lists[first / step];
        for (int64_t b = first; b < last; ++b) {
            if (mixed(static_cast<uint64_t>(b) * 0x9e37u + salt) % SUBROUNDS != static_cast<uint64_t>(turn)) continue;
            const int64_t end = std::min<int64_t>(n, (b + 1) << shift);
            for (int64_t v = b << shift; v < end; ++v) propose(static_cast<int32_t>(v), list, thread);
        }
    });
    join(lists, all);
}

}  // namespace grinnder
