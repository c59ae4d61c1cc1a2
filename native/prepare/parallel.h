// Threads for one call: started, joined, gone. Calls take milliseconds to seconds, so starting costs nothing.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace grinnder {

constexpr int64_t edges_per_thread = 1 << 14;  // fewer are done before a thread has started

inline int team(int threads, int64_t edges) {
    return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(threads, edges / edges_per_thread)));
}

// run(0) to run(size - 1), each once, at the same time where the system gives threads.
template <typename Run>
void parallel(int size, Run run) {
    std::vector<std::thread> others;
    others.reserve(static_cast<size_t>(size));
    int started = 1;
    try {
        for (; started < size; ++started) others.emplace_back(run, started);
    } catch (const std::system_error &) {  // no more threads: this one does the rest
    }
    run(0);
    for (int t = started; t < size; ++t) run(t);
    for (std::thread &other : others) other.join();
}

// Row at which share t of `size` begins, so that shares have about the same number of edges.
inline int64_t share(const int64_t *indptr, int64_t first, int64_t last, int t, int size) {
    if (t == 0) return first;
    if (t == size) return last;
    const int64_t goal = indptr[first] + (indptr[last] - indptr[first]) / size * t;
    return std::lower_bound(indptr + first, indptr + last, goal) - indptr;
}

inline bool is_weight(int bytes, const void *weight) {
    return weight ? bytes == 2 || bytes == 4 || bytes == 8 : bytes == 0;
}

}  // namespace grinnder
