// Attention: which kernel of attend.cuh fits, argument checks, entry points.
#include "../cpu/edges.h"
#include "attend.cuh"

namespace grinnder {
namespace {

template <int vector, int lanes, int pieces, bool backward>
int launch(const AttentionArgs<float> &a, int64_t rows, cudaStream_t stream) {
    const int64_t blocks = (rows + warps - 1) / warps;
    if (blocks > INT32_MAX || a.heads > 65535) return -EINVAL;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(a.heads));
    if constexpr (!backward)
        if (!a.big_q) {
            attend<vector, lanes, pieces, false, false><<<grid, block_threads, 0, stream>>>(a, rows);
            return launched();
        }
    attend<vector, lanes, pieces, true, backward><<<grid, block_threads, 0, stream>>>(a, rows);
    return launched();
}

template <bool backward>
int launch(const AttentionArgs<float> &a, int64_t rows, cudaStream_t stream) {
    bool vectors = a.channels % 4 == 0;
    for (const float *p : {a.x, a.x_halo, static_cast<const float *>(a.out), static_cast<const float *>(a.big_q), a.y,
                           a.att_src, a.att_dst, static_cast<const float *>(a.dy)})
        vectors = vectors && aligned(p, 16);
    if (vectors) {
        if (a.channels <= 8) return launch<4, 2, 1, backward>(a, rows, stream);
        if (a.channels <= 16) return launch<4, 4, 1, backward>(a, rows, stream);
        if (a.channels <= 32) return launch<4, 8, 1, backward>(a, rows, stream);
        if (a.channels <= 64) return launch<4, 16, 1, backward>(a, rows, stream);
        if (a.channels <= 128) return launch<4, 32, 1, backward>(a, rows, stream);
        return launch<4, 32, 2, backward>(a, rows, stream);
    }
    if (a.channels <= 4) return launch<1, 4, 1, backward>(a, rows, stream);
    if (a.channels <= 16) return launch<1, 16, 1, backward>(a, rows, stream);
    if (a.channels <= 32) return launch<1, 32, 1, backward>(a, rows, stream);
    if (a.channels <= 64) return launch<1, 32, 2, backward>(a, rows, stream);
    return launch<1, 32, 4, backward>(a, rows, stream);
}

// What both directions take.
struct Call {
    int64_t rows, edges, own_rows, halo_rows;
    double slope;
    uint32_t seed, stream_word;
    const uint32_t *added_word;
    double p;
    cudaStream_t stream;
};

// Fills what `a` lacks but its arrays, and launches; `written` are the outputs that may not be null.
template <bool backward>
int run(const Call &call, AttentionArgs<float> a, const int64_t *row_ids, bool written) {
    const int64_t halo_rows = call.halo_rows, own_rows = call.own_rows < INT32_MAX ? call.own_rows : INT32_MAX;
    if (call.rows < 0 || call.edges < 0 || own_rows < 0 || halo_rows < 0 || a.heads < 0 || a.channels < 0 ||
        !a.indptr || !(call.slope > 0.0 && call.slope < INFINITY) || !(call.p >= 0.0 && call.p < 1.0))
        return -EINVAL;
    if (call.rows == 0 || a.heads == 0 || a.channels == 0) return 0;
    if (a.heads > INT32_MAX / a.channels || !written || !a.row) return -EINVAL;
    if (call.edges > 0 &&
        (!a.indices || (own_rows > 0 && !(a.x && a.edge)) || (halo_rows > 0 && !(a.x_halo && a.edge_halo))))
        return -EINVAL;
    if (call.p > 0.0 && (!row_ids || (own_rows > 0 && !a.ids) || (halo_rows > 0 && !a.ids_halo))) return -EINVAL;
    a.own_rows = static_cast<int32_t>(own_rows);
    a.x_halo = before_halo(a.x_halo, own_rows, a.heads * a.channels);
    a.edge_halo = before_halo(a.edge_halo, own_rows, (backward ? 3 : 1) * a.heads);
    a.ids_halo = before_halo(a.ids_halo, own_rows, 1);
    a.slope = static_cast<float>(call.slope);
    a.mask = make_mask(row_ids, call.seed, call.stream_word, call.p, call.added_word);
    return launch<backward>(a, call.rows, call.stream);
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_attention_f32(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows,
                                                int64_t heads, int64_t channels, double slope, const int64_t *indptr,
                                                const int32_t *indices, const float *y, const float *y_halo,
                                                const float *s, const float *s_halo, const float *d,
                                                const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo,
                                                uint32_t seed, uint32_t stream_word, const uint32_t *added_word,
                                                double p, float *out, float *lse, float *big_q, float *q,
                                                void *stream) {
    using namespace grinnder;
    AttentionArgs<float> a{};
    a.indptr = indptr, a.indices = indices, a.heads = heads, a.channels = channels;
    a.x = y, a.x_halo = y_halo, a.edge = s, a.edge_halo = s_halo, a.row = d, a.ids = ids, a.ids_halo = ids_halo;
    a.out = out, a.lse = lse, a.big_q = big_q, a.q = q;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    return run<false>({rows, edges, own_rows, halo_rows, slope, seed, stream_word, added_word, p, on}, a, row_ids,
                      out && lse && !big_q == !q);
}

GRINNDER_EXPORT int grinnder_cuda_attention_grad_f32(
    int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads, int64_t channels, double slope,
    const int64_t *indptr, const int32_t *indices, const float *g, const float *g_halo, const float *edge,
    const float *edge_halo, const float *y, const float *s, const float *dd, const float *att_src, const float *att_dst,
    const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo, uint32_t seed, uint32_t stream_word,
    const uint32_t *added_word, double p, float *dy, float *ds, void *stream) {
    using namespace grinnder;
    AttentionArgs<float> a{};
    a.indptr = indptr, a.indices = indices, a.heads = heads, a.channels = channels;
    a.x = g, a.x_halo = g_halo, a.edge = edge, a.edge_halo = edge_halo, a.row = s, a.ids = ids, a.ids_halo = ids_halo;
    a.y = y, a.dd = dd, a.att_src = att_src, a.att_dst = att_dst, a.dy = dy, a.ds = ds;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    return run<true>({rows, edges, own_rows, halo_rows, slope, seed, stream_word, added_word, p, on}, a, row_ids,
                     y && dd && att_src && att_dst && dy && ds);
}
