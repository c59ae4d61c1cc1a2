// Attention: argument checks, and the split of the work among threads.
#include <errno.h>
#include <math.h>

#include <atomic>
#include <vector>

#include "call.h"
#include "edges.h"
#include "export.h"
#include "scratch.h"

namespace grinnder {
namespace {

// Rows [row, row_end) but those of several pieces, or one piece of a row: edges [begin, end) into sums number `piece`.
struct Task {
    int64_t row, row_end, begin, end, piece;
};

struct Hub {
    int64_t row, piece, pieces;
};

struct Work {
    std::vector<Task> tasks;
    std::vector<Hub> hubs;
    int64_t pieces = 0;
};

// Pieces of long rows, then ranges of rows of about equal work. How a row is cut is a function of its length.
Work split(const int64_t *indptr, int64_t rows, int threads) {
    Work work;
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t begin = indptr[row], end = indptr[row + 1];
        if (end - begin <= attention_piece) continue;
        work.hubs.push_back({row, work.pieces, (end - begin + attention_piece - 1) / attention_piece});
        for (int64_t at = begin; at < end; at += attention_piece)
            work.tasks.push_back({row, row + 1, at, std::min(end, at + attention_piece), work.pieces++});
    }
    const int64_t total = cost_before(indptr, rows), grain = task_cost(indptr, rows, threads);
    int64_t row = 0;
    for (int64_t cost = grain; row < rows; cost += grain) {
        const int64_t row_end = cost < total ? row_at(indptr, rows, cost) : rows;
        if (row_end > row) work.tasks.push_back({row, row_end, indptr[row], indptr[row_end], -1});
        row = row_end;
    }
    return work;
}

bool non_decreasing(const int64_t *indptr, int64_t rows, int64_t edges) {
    bool ok = indptr[0] >= 0 && indptr[rows] <= edges;
    for (int64_t r = 0; r < rows; ++r) ok &= indptr[r] <= indptr[r + 1];
    return ok;
}

bool are_words(const int64_t *ids, int64_t n) {
    uint64_t all = 0;
    for (int64_t i = 0; i < n; ++i) all |= static_cast<uint64_t>(ids[i]);
    return all <= UINT32_MAX;
}

// What both directions take.
struct Call {
    int64_t rows, edges, own_rows, halo_rows;
    double slope;
    uint32_t seed, stream;
    double p;
    int threads;
};

// Fills what `a` lacks but its arrays, and runs; `written` are the outputs that may not be null.
template <typename T>
int run(const Call &call, AttentionArgs<T> a, const int64_t *row_ids, int narrow, bool written,
        const Attention<T> &kernel) {
    const int64_t rows = call.rows, edges = call.edges, halo_rows = call.halo_rows;
    int64_t own_rows = call.own_rows;
    if (rows < 0 || edges < 0 || own_rows < 0 || halo_rows < 0 || a.heads < 0 || a.channels < 0 || call.threads < 1 ||
        !a.indptr || !(call.slope > 0.0 && call.slope < INFINITY) || !(call.p >= 0.0 && call.p < 1.0))
        return -EINVAL;
    if (rows == 0 || a.heads == 0 || a.channels == 0) return 0;
    if (a.heads > INT32_MAX / a.channels || !written || !a.row) return -EINVAL;
    if (edges > 0 &&
        (!a.indices || (own_rows > 0 && !(a.x && a.edge)) || (halo_rows > 0 && !(a.x_halo && a.edge_halo))))
        return -EINVAL;
    const bool drop = call.p > 0.0;
    if (drop && (!row_ids || (own_rows > 0 && !a.ids) || (halo_rows > 0 && !a.ids_halo))) return -EINVAL;
    if (!non_decreasing(a.indptr, rows, edges)) return -ERANGE;
    if (drop && !(are_words(row_ids, rows) && are_words(a.ids, own_rows) && are_words(a.ids_halo, halo_rows)))
        return -EOVERFLOW;
    own_rows = std::min<int64_t>(own_rows, INT32_MAX);  // no index reaches further
    const int64_t width = a.heads * a.channels;
    a.own_rows = static_cast<int32_t>(own_rows);
    a.x_halo = before_halo(a.x_halo, own_rows, width);
    a.edge_halo = before_halo(a.edge_halo, own_rows, narrow * a.heads);
    a.ids_halo = before_halo(a.ids_halo, own_rows, 1);
    a.slope = static_cast<T>(call.slope);
    a.mask = make_mask(row_ids, call.seed, call.stream, call.p);
    a.end = a.indptr[rows];
    try {
        const Work work = split(a.indptr, rows, call.threads);
        const int64_t n = static_cast<int64_t>(work.tasks.size()), hubs = static_cast<int64_t>(work.hubs.size());
        const int size = static_cast<int>(std::min<int64_t>(call.threads, n));
        const int64_t stride = attention_sums<T>(a.heads, a.channels);
        const int64_t room = lines<T>(attention_scratch<T>(a.heads, a.channels));
        const Scratch<T> scratch(size * room), sums(work.pieces * stride);
        if (!scratch.at || !sums.at) return -ENOMEM;
        std::atomic<bool> ok{true};
#pragma omp parallel for schedule(dynamic, 1) num_threads(size)
        for (int64_t i = 0; i < n; ++i) {
            const Task &t = work.tasks[static_cast<size_t>(i)];
            T *const mine = scratch.at + thread_number() * room;
            if (!indices_in_range(a.indices, t.begin, t.end, own_rows + halo_rows))
                ok.store(false, std::memory_order_relaxed);
            else if (t.piece >= 0) kernel.piece(a, t.row, t.begin, t.end, sums.at + t.piece * stride, mine);
            else kernel.rows(a, t.row, t.row_end, mine);
        }
#pragma omp parallel for schedule(dynamic, 1) num_threads(size) if (hubs > 1)
        for (int64_t i = 0; i < hubs; ++i) {
            const Hub &hub = work.hubs[static_cast<size_t>(i)];
            kernel.finish(a, hub.row, sums.at + hub.piece * stride, hub.pieces);
        }
        return ok ? 0 : -ERANGE;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

template <typename T>
int forward(const Call &call, int64_t heads, int64_t channels, const int64_t *indptr, const int32_t *indices,
            const T *y, const T *y_halo, const T *s, const T *s_halo, const T *d, const int64_t *row_ids,
            const int64_t *ids, const int64_t *ids_halo, T *out, T *lse, T *big_q, T *q, const Attention<T> &kernel) {
    AttentionArgs<T> a{};
    a.indptr = indptr, a.indices = indices, a.heads = heads, a.channels = channels;
    a.x = y, a.x_halo = y_halo, a.edge = s, a.edge_halo = s_halo, a.row = d, a.ids = ids, a.ids_halo = ids_halo;
    a.out = out, a.lse = lse, a.big_q = big_q, a.q = q;
    return run(call, a, row_ids, 1, out && lse && !big_q == !q, kernel);
}

template <typename T>
int backward(const Call &call, int64_t heads, int64_t channels, const int64_t *indptr, const int32_t *indices,
             const T *g, const T *g_halo, const T *edge, const T *edge_halo, const T *y, const T *s, const T *dd,
             const T *att_src, const T *att_dst, const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo,
             T *dy, T *ds, const Attention<T> &kernel) {
    AttentionArgs<T> a{};
    a.indptr = indptr, a.indices = indices, a.heads = heads, a.channels = channels;
    a.x = g, a.x_halo = g_halo, a.edge = edge, a.edge_halo = edge_halo, a.row = s, a.ids = ids, a.ids_halo = ids_halo;
    a.y = y, a.dd = dd, a.att_src = att_src, a.att_dst = att_dst, a.dy = dy, a.ds = ds;
    return run(call, a, row_ids, 3, y && dd && att_src && att_dst && dy && ds, kernel);
}

constexpr int64_t dots_block_rows = 64;

template <typename Run>
int row_blocks(int64_t rows, int64_t width, uint64_t row_bytes, int threads, bool there, Run kernel) {
    if (rows < 0 || width < 0 || threads < 1) return -EINVAL;
    if (rows == 0 || width == 0) return 0;
    if (!there) return -EINVAL;
    const int64_t blocks = (rows + dots_block_rows - 1) / dots_block_rows;
    const int size = team(threads, rows, row_bytes);
    (void)size;
#pragma omp parallel for schedule(static) num_threads(size)
    for (int64_t b = 0; b < blocks; ++b) kernel(b * dots_block_rows, std::min(rows, (b + 1) * dots_block_rows));
    return 0;
}

template <typename T>
int scores(int64_t rows, int64_t heads, int64_t channels, const T *y, const T *att_src, const T *att_dst, T *s, T *d,
           int threads, const RowDots<T> &kernel) {
    if (heads < 0 || channels < 0 || (channels > 0 && heads > INT32_MAX / channels)) return -EINVAL;
    const int64_t width = heads * channels;
    return row_blocks(rows, width, static_cast<uint64_t>(width) * sizeof(T), threads,
                      y && att_src && s && !att_dst == !d, [&](int64_t row, int64_t row_end) {
                          kernel.scores(heads, channels, y, att_src, att_dst, s, d, row, row_end);
                      });
}

template <typename T>
int settle(int64_t rows, int64_t heads, int64_t channels, const T *g, const T *out, const T *big_q, const T *q,
           const T *d, const T *lse, T *edge, T *dd, int threads, const RowDots<T> &kernel) {
    if (heads < 0 || channels < 0 || (channels > 0 && heads > INT32_MAX / channels)) return -EINVAL;
    const int64_t width = heads * channels;
    return row_blocks(rows, width, static_cast<uint64_t>(3 * width) * sizeof(T), threads,
                      g && out && big_q && q && d && lse && edge && dd, [&](int64_t row, int64_t row_end) {
                          kernel.settle(heads, channels, g, out, big_q, q, d, lse, edge, dd, row, row_end);
                      });
}

}  // namespace
}  // namespace grinnder

// The functions of grinnder_cpu.h for one type, by the suffix of their names.
#define GRINNDER_ATTENTION(T, suffix)                                                                                  \
    GRINNDER_EXPORT int grinnder_cpu_attention_scores_##suffix(                                                        \
        int64_t rows, int64_t heads, int64_t channels, const T *y, const T *att_src, const T *att_dst, T *s, T *d,     \
        int threads) {                                                                                                 \
        return grinnder::scores(rows, heads, channels, y, att_src, att_dst, s, d, threads,                             \
                                grinnder::kernels().row_dots_##suffix);                                                \
    }                                                                                                                  \
    GRINNDER_EXPORT int grinnder_cpu_attention_##suffix(                                                               \
        int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads, int64_t channels,             \
        double slope, const int64_t *indptr, const int32_t *indices, const T *y, const T *y_halo, const T *s,          \
        const T *s_halo, const T *d, const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo,              \
        uint32_t seed, uint32_t stream, double p, T *out, T *lse, T *big_q, T *q, int threads) {                       \
        return grinnder::forward({rows, edges, own_rows, halo_rows, slope, seed, stream, p, threads}, heads,           \
                                 channels, indptr, indices, y, y_halo, s, s_halo, d, row_ids, ids, ids_halo, out,      \
                                 lse, big_q, q, grinnder::kernels().attention_##suffix);                               \
    }                                                                                                                  \
    GRINNDER_EXPORT int grinnder_cpu_attention_settle_##suffix(                                                        \
        int64_t rows, int64_t heads, int64_t channels, const T *g, const T *out, const T *big_q, const T *q,           \
        const T *d, const T *lse, T *edge, T *dd, int threads) {                                                       \
        return grinnder::settle(rows, heads, channels, g, out, big_q, q, d, lse, edge, dd, threads,                    \
                                grinnder::kernels().row_dots_##suffix);                                                \
    }                                                                                                                  \
    GRINNDER_EXPORT int grinnder_cpu_attention_grad_##suffix(                                                          \
        int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads, int64_t channels,             \
        double slope, const int64_t *indptr, const int32_t *indices, const T *g, const T *g_halo, const T *edge,       \
        const T *edge_halo, const T *y, const T *s, const T *dd, const T *att_src, const T *att_dst,                   \
        const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo, uint32_t seed, uint32_t stream,           \
        double p, T *dy, T *ds, int threads) {                                                                         \
        return grinnder::backward({rows, edges, own_rows, halo_rows, slope, seed, stream, p, threads}, heads,          \
                                  channels, indptr, indices, g, g_halo, edge, edge_halo, y, s, dd, att_src,            \
                                  att_dst, row_ids, ids, ids_halo, dy, ds,                                             \
                                  grinnder::kernels().attention_grad_##suffix);                                        \
    }

GRINNDER_ATTENTION(float, f32)
GRINNDER_ATTENTION(double, f64)
