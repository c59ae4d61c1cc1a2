// Rows of edges: their cost, where they lie, and whether they may be read. No isa_*.cpp includes this.
#pragma once
#include <stdint.h>

#include <algorithm>

namespace grinnder {
namespace {

constexpr int64_t min_task_cost = 2048;  // edges; below that starting a task costs as much as its work
constexpr int tasks_per_thread = 32;

// Work up to a row, in edges; writing a row counts as one more.
inline int64_t cost_before(const int64_t *indptr, int64_t row) { return indptr[row] - indptr[0] + row; }

// Of one task.
inline int64_t task_cost(const int64_t *indptr, int64_t rows, int threads) {
    return std::max<int64_t>(min_task_cost, cost_before(indptr, rows) / (int64_t(threads) * tasks_per_thread) + 1);
}

// First row whose work before it is at least `cost`.
inline int64_t row_at(const int64_t *indptr, int64_t rows, int64_t cost) {
    int64_t low = 0, high = rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (cost_before(indptr, middle) < cost) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Are the indices of edges [begin, end) below x_rows? A scan of what the task reads anyway.
inline bool indices_in_range(const int32_t *indices, int64_t begin, int64_t end, int64_t x_rows) {
    uint32_t largest = 0;  // a negative index is a huge unsigned one
    for (int64_t e = begin; e < end; ++e) largest = std::max(largest, static_cast<uint32_t>(indices[e]));
    return begin == end || static_cast<int64_t>(largest) < x_rows;
}

// Where row 0 of the halo would lie if `rows` rows preceded it. Address arithmetic on integers: the pointer itself may
// lie outside any array.
template <typename T>
const T *before_halo(const T *halo, int64_t rows, int64_t width) {
    return reinterpret_cast<const T *>(reinterpret_cast<uintptr_t>(halo) -
                                       static_cast<uintptr_t>(rows * width) * sizeof(T));
}

}  // namespace
}  // namespace grinnder
