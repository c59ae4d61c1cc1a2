// Sparse rows times a dense matrix: argument checks and the split of the work among threads.
#include <errno.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "edges.h"
#include "export.h"
#include "kernel_set.h"

namespace grinnder {
namespace {

struct Task {
    int64_t row, row_end, column, column_end;
};

// A hub's row goes to several threads as column ranges of this many bytes: no sum is ever split.
constexpr int64_t hub_column_bytes = 128;

// Tasks of about equal work. A row heavier than two tasks is one boundary met twice: it becomes column tasks, first in
// the list, since they are the longest.
template <typename T>
std::vector<Task> split(const int64_t *indptr, int64_t rows, int64_t width, int threads) {
    const int64_t total = cost_before(indptr, rows), grain = task_cost(indptr, rows, threads);
    std::vector<Task> light, all;
    const int64_t hub_columns = hub_column_bytes / int64_t(sizeof(T));
    int64_t row = 0;
    for (int64_t cost = grain; row < rows; cost += grain) {
        const int64_t row_end = cost < total ? row_at(indptr, rows, cost) : rows;
        if (row_end == row) continue;  // the rest of a hub
        const int64_t last = row_end - 1;
        const bool hub = cost_before(indptr, row_end) - cost_before(indptr, last) >= 2 * grain;
        const int64_t light_end = hub ? last : row_end;
        if (light_end > row) light.push_back({row, light_end, 0, width});
        for (int64_t c = 0; hub && c < width;) {  // the last range takes the remainder, never less than a vector
            const int64_t end = width - c < 2 * hub_columns ? width : c + hub_columns;
            all.push_back({last, row_end, c, end});
            c = end;
        }
        row = row_end;
    }
    all.insert(all.end(), light.begin(), light.end());
    return all;
}

// Do the task's edges stay inside `indices`, and its indices inside x?
bool in_range(const Task &t, const int64_t *indptr, const int32_t *indices, int64_t rows, int64_t x_rows) {
    bool ok = indptr[t.row] >= indptr[0] && indptr[t.row_end] <= indptr[rows];
    for (int64_t r = t.row; r < t.row_end; ++r) ok &= indptr[r] <= indptr[r + 1];
    return ok && indices_in_range(indices, indptr[t.row], indptr[t.row_end], x_rows);
}

template <typename T, typename Run>
int spmm(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows, int64_t width, const int64_t *indptr,
         const int32_t *indices, const T *weight, const T *scale, const T *x, const T *halo, T *out, int threads,
         Run run) {
    if (rows < 0 || edges < 0 || x_rows < 0 || halo_rows < 0 || width < 0 || threads < 1 || !indptr) return -EINVAL;
    if (rows == 0 || width == 0) return 0;
    if (!out || (edges > 0 && (!indices || (x_rows > 0 && !x) || (halo_rows > 0 && !halo)))) return -EINVAL;
    if (x_rows > INT32_MAX) x_rows = INT32_MAX;  // no index reaches further
    if (indptr[0] < 0 || indptr[rows] < indptr[0] || indptr[rows] > edges) return -ERANGE;
    std::vector<Task> tasks;
    try {
        tasks = split<T>(indptr, rows, width, threads);
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
    const T *shifted = before_halo(halo, x_rows, width);
    const SpmmArgs<T> args{indptr, indices, weight, scale, x, shifted, static_cast<int32_t>(x_rows), out, width,
                           indptr[rows]};
    std::atomic<bool> ok{true};
    const int64_t n = static_cast<int64_t>(tasks.size());
    const int team = static_cast<int>(std::min<int64_t>(threads, n));
    (void)team;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (int64_t i = 0; i < n; ++i) {
        const Task &t = tasks[static_cast<size_t>(i)];
        if (in_range(t, indptr, indices, rows, x_rows + halo_rows)) run(args, t.row, t.row_end, t.column, t.column_end);
        else ok.store(false, std::memory_order_relaxed);
    }
    return ok ? 0 : -ERANGE;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cpu_spmm_f32(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows,
                                          int64_t width, const int64_t *indptr, const int32_t *indices,
                                          const float *weight, const float *scale, const float *x, const float *halo,
                                          float *out, int threads) {
    return grinnder::spmm(rows, edges, x_rows, halo_rows, width, indptr, indices, weight, scale, x, halo, out, threads,
                          grinnder::kernels().spmm_f32);
}

GRINNDER_EXPORT int grinnder_cpu_spmm_f64(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows,
                                          int64_t width, const int64_t *indptr, const int32_t *indices,
                                          const double *weight, const double *scale, const double *x, const double *halo,
                                          double *out, int threads) {
    return grinnder::spmm(rows, edges, x_rows, halo_rows, width, indptr, indices, weight, scale, x, halo, out, threads,
                          grinnder::kernels().spmm_f64);
}
