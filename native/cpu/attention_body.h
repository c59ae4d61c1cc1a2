// Attention over the edges of a row, forward along in-edges and backward along out-edges, compiled once per
// instruction set. No edge tensor: the weights of a chunk of edges are made in scratch memory, then rows are summed.
//
//     forward   w_e = exp(leaky(s_u + d_v) - top)      total = sum w mask y_u     sloped = sum w mask leaky' y_u
//     backward  w_e = exp(leaky(s_u + d_v) - lse_v)    total = sum w mask dO_v    sloped = sum w mask leaky' dO_v
//
// Both directions are the same two sums. Backward needs ds_u = sum of w leaky' (mask <y_u, dO_v> - delta_v), which is
// <y_u, sloped> - sum of w leaky' delta_v: one dot product per row, none per edge.
#pragma once
#include "edge_mask_body.h"
#include "exp_body.h"
#include "row_dots_body.h"
#include "weigh_body.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

struct Forward {
    static constexpr bool backward = false;
};
struct Backward {
    static constexpr bool backward = true;
};

// One piece's sums. Per head: `top`, the largest score (forward), `sum` of the weights (backward: of w leaky' delta),
// `slope_sum` of w leaky' (forward). Per column: the two totals.
template <typename T>
struct Sums {
    T *top, *sum, *slope_sum, *total, *sloped;

    Sums(T *at, int64_t heads, int64_t channels)
        : top(at), sum(at + heads), slope_sum(at + 2 * heads), total(at + lines<T>(3 * heads)),
          sloped(total + lines<T>(heads * channels)) {}
};

constexpr int64_t prefetch_narrow = 24;

template <typename T, int bytes, int max_vectors, typename Kind>
struct AttentionKernel {
    using V = typename Vector<T, bytes>::type;
    using Rows = WeighRow<T, bytes, max_vectors>;
    static constexpr int lanes = Vector<T, bytes>::lanes;
    static constexpr int64_t chunk_edges = attention_chunk;
    static constexpr int narrow = Kind::backward ? 3 : 1;  // values per head in `edge`

    // What a thread works in. `weight` holds raw scores, then weights.
    struct Work {
        T *weight, *sloped, *lse, *delta;
        Columns columns;
        EdgeKeys keys;
        alignas(64) uint32_t word[chunk_edges];

        Work(const AttentionArgs<T> &a, T *scratch) {
            const int64_t each = a.heads * chunk_edges, width = a.heads * a.channels;
            weight = scratch + attention_sums<T>(a.heads, a.channels);
            sloped = weight + each, lse = sloped + each, delta = lse + each;
            columns = Rows::columns(a.heads, a.channels, reinterpret_cast<int32_t *>(delta + each),
                                    reinterpret_cast<int32_t *>(delta + each + lines<T>(width)));
        }
    };

    static const T *edge_row(const AttentionArgs<T> &a, int32_t i) {
        return (i < a.own_rows ? a.edge : a.edge_halo) + i * (narrow * a.heads);
    }

    // Scores of edges [at, at + n), and neutral ones up to a whole vector: their weight is 0.
    static void load_scores(const AttentionArgs<T> &a, Work &w, int64_t at, int64_t n) {
        const int64_t padded = (n + lanes - 1) / lanes * lanes, heads = a.heads;
        for (int64_t e = 0; e < n; ++e) {
            const int64_t ahead = at + e + prefetch_narrow < a.end ? at + e + prefetch_narrow : at + e;
            __builtin_prefetch(edge_row(a, a.indices[ahead]));
            const T *const from = edge_row(a, a.indices[at + e]);
            for (int64_t h = 0; h < heads; ++h) {
                w.weight[h * chunk_edges + e] = from[h];
                if (!Kind::backward) continue;
                w.lse[h * chunk_edges + e] = from[heads + h];
                w.delta[h * chunk_edges + e] = from[2 * heads + h];
            }
        }
        const T infinity = static_cast<T>(__builtin_inf());
        for (int64_t e = n; e < padded; ++e)
            for (int64_t h = 0; h < heads; ++h) {
                w.weight[h * chunk_edges + e] = Kind::backward ? T(0) : -infinity;
                w.lse[h * chunk_edges + e] = infinity;
                w.delta[h * chunk_edges + e] = T(0);
            }
    }

    // Equal edges are neighbours: an edge's occurrence is one more than that of an equal one before it.
    static void load_keys(const AttentionArgs<T> &a, Work &w, int64_t row_begin, int64_t at, int64_t n) {
        uint64_t occurrence = 0;
        for (int64_t e = at; e > row_begin && a.indices[e - 1] == a.indices[at]; --e) ++occurrence;
        for (int64_t e = 0; e < n; ++e) {
            const int32_t i = a.indices[at + e];
            if (e > 0) occurrence = i == a.indices[at + e - 1] ? occurrence + 1 : 0;
            w.keys.occurrence[e] = static_cast<uint32_t>(occurrence);
            w.keys.other[e] = static_cast<uint32_t>((i < a.own_rows ? a.ids : a.ids_halo)[i]);
        }
    }

    // Each head's largest score of the piece, whose first chunk is loaded. leaky is monotonic: that of the largest s.
    static void find_top(const AttentionArgs<T> &a, const Work &w, int64_t row, int64_t begin, int64_t end, T *top) {
        const int64_t loaded = end - begin < chunk_edges ? end - begin : chunk_edges;
        for (int64_t h = 0; h < a.heads; ++h) {
            const T *const score = w.weight + h * chunk_edges;
            V largest = *reinterpret_cast<const V *>(score);
            for (int64_t e = lanes; e < loaded; e += lanes) {
                const V v = *reinterpret_cast<const V *>(score + e);
                largest = v > largest ? v : largest;
            }
            top[h] = largest[0];
            for (int i = 1; i < lanes; ++i) top[h] = largest[i] > top[h] ? largest[i] : top[h];
        }
        for (int64_t e = begin + loaded; e < end; ++e) {
            const T *const from = edge_row(a, a.indices[e]);
            for (int64_t h = 0; h < a.heads; ++h) top[h] = from[h] > top[h] ? from[h] : top[h];
        }
        for (int64_t h = 0; h < a.heads; ++h) {
            const T x = top[h] + a.row[row * a.heads + h];
            top[h] = x * (x > T(0) ? T(1) : a.slope);
        }
    }

    // Scores become weights; what sums of them are needed is added to `sums`.
    static void make_weights(const AttentionArgs<T> &a, Work &w, int64_t row, int64_t n, const Sums<T> &sums) {
        const V one = V{} + T(1), slope = V{} + a.slope, scale = V{} + static_cast<T>(a.mask.scale);
        for (int64_t h = 0; h < a.heads; ++h) {
            if (a.mask.ids)
                edge_words<Kind::backward>(a.mask, static_cast<uint32_t>(a.mask.ids[row]), w.keys,
                                           static_cast<uint64_t>(h), n, w.word);
            const V other = V{} + a.row[row * a.heads + h], top = V{} + (Kind::backward ? T(0) : sums.top[h]);
            T *const weight = w.weight + h * chunk_edges, *const sloped = w.sloped + h * chunk_edges;
            V sum = {}, slope_sum = {};
            for (int64_t e = 0; e < n; e += lanes) {
                const V x = *reinterpret_cast<const V *>(weight + e) + other;
                const V factor = x > T(0) ? one : slope;
                const V from = Kind::backward ? *reinterpret_cast<const V *>(w.lse + h * chunk_edges + e) : top;
                V v = Exp<T, bytes>::of(x * factor - from);
                if (Kind::backward) sum += v * factor * *reinterpret_cast<const V *>(w.delta + h * chunk_edges + e);
                else sum += v, slope_sum += v * factor;
                if (a.mask.ids) v = Lanes<T, bytes>::kept(v * scale, w.word + e, a.mask.threshold);
                *reinterpret_cast<V *>(weight + e) = v;
                *reinterpret_cast<V *>(sloped + e) = v * factor;
            }
            sums.sum[h] += Total<T, bytes>::of(sum);
            if (!Kind::backward) sums.slope_sum[h] += Total<T, bytes>::of(slope_sum);
        }
    }

    static void sum_piece(const AttentionArgs<T> &a, Work &w, int64_t row, int64_t begin, int64_t end, T *to) {
        const Sums<T> sums(to, a.heads, a.channels);
        for (int64_t h = 0; h < a.heads; ++h) sums.sum[h] = sums.slope_sum[h] = T(0);
        for (int64_t at = begin; at < end; at += chunk_edges) {
            const int64_t n = end - at < chunk_edges ? end - at : chunk_edges;
            load_scores(a, w, at, n);
            if (!Kind::backward && at == begin) find_top(a, w, row, begin, end, sums.top);
            if (a.mask.ids) load_keys(a, w, a.indptr[row], at, n);
            make_weights(a, w, row, n, sums);
            const Chunk<T> chunk{at, n, w.weight, w.sloped, sums.total, sums.sloped, at == begin};
            if (Kind::backward || a.big_q) Rows::template run<true>(a, chunk, w.columns);
            else Rows::template run<false>(a, chunk, w.columns);
        }
    }

    static void piece(const AttentionArgs<T> &a, int64_t row, int64_t begin, int64_t end, T *sums, T *scratch) {
        Work work(a, scratch);
        sum_piece(a, work, row, begin, end, sums);
    }

    static void rows(const AttentionArgs<T> &a, int64_t row, int64_t row_end, T *scratch) {
        Work work(a, scratch);
        for (; row < row_end; ++row) {
            const int64_t begin = a.indptr[row], end = a.indptr[row + 1];
            if (end - begin > attention_piece) continue;
            if (begin < end) sum_piece(a, work, row, begin, end, scratch);
            finish(a, row, scratch, begin < end);
        }
    }

    // Adds the pieces up in the first one, each weighed by its distance from the largest score of all.
    static void merge(const AttentionArgs<T> &a, T *at, int64_t pieces) {
        const int64_t stride = attention_sums<T>(a.heads, a.channels);
        const Sums<T> first(at, a.heads, a.channels);
        for (int64_t h = 0; h < a.heads; ++h) {
            T top = first.top[h], sum = T(0), slope_sum = T(0);
            for (int64_t p = 1; p < pieces && !Kind::backward; ++p)
                top = at[p * stride + h] > top ? at[p * stride + h] : top;
            for (int64_t p = 0; p < pieces; ++p) {
                const Sums<T> part(at + p * stride, a.heads, a.channels);
                const T factor = Kind::backward ? T(1) : Exp<T, bytes>::of(V{} + (part.top[h] - top))[0];
                sum += factor * part.sum[h];
                slope_sum += factor * part.slope_sum[h];
                for (int64_t c = h * a.channels; c < (h + 1) * a.channels; ++c) {
                    first.total[c] = p ? first.total[c] + factor * part.total[c] : factor * part.total[c];
                    if (!Kind::backward && !a.big_q) continue;
                    first.sloped[c] = p ? first.sloped[c] + factor * part.sloped[c] : factor * part.sloped[c];
                }
            }
            first.top[h] = top, first.sum[h] = sum, first.slope_sum[h] = slope_sum;
        }
    }

    static void finish(const AttentionArgs<T> &a, int64_t row, T *at, int64_t pieces) {
        if (pieces > 1) merge(a, at, pieces);
        const Sums<T> sums(at, a.heads, a.channels);
        const int64_t channels = a.channels;
        for (int64_t h = 0; h < a.heads; ++h) {
            const int64_t head = row * a.heads + h, wide = head * channels, from = h * channels;
            if constexpr (Kind::backward) {
                const T ds = pieces ? dot<T, bytes>(a.y + wide, sums.sloped + from, channels) - sums.sum[h] : T(0);
                const V v_ds = V{} + ds, v_dd = V{} + a.dd[head];
                for (int64_t c = 0; c < channels; c += lanes) {
                    V v = pieces ? load<T, bytes, false>(sums.total + from + c, channels - c) : V{};
                    v = Lanes<T, bytes>::fused(v_ds, load<T, bytes, false>(a.att_src + from + c, channels - c), v);
                    v = Lanes<T, bytes>::fused(v_dd, load<T, bytes, false>(a.att_dst + from + c, channels - c), v);
                    store<T, bytes, false>(a.dy + wide + c, v, channels - c);
                }
                a.ds[head] = ds;
            } else {
                const T inverse = pieces ? T(1) / sums.sum[h] : T(0);
                a.lse[head] = pieces ? sums.top[h] + log(sums.sum[h]) : T(0);
                if (a.q) a.q[head] = pieces ? sums.slope_sum[h] * inverse : T(0);
                write_scaled(sums.total + from, inverse, a.out + wide, channels, pieces);
                if (a.big_q) write_scaled(sums.sloped + from, inverse, a.big_q + wide, channels, pieces);
            }
        }
    }

    static void write_scaled(const T *from, T factor, T *to, int64_t channels, int64_t pieces) {
        for (int64_t c = 0; c < channels; c += lanes) {
            const V v = pieces ? load<T, bytes, false>(from + c, channels - c) * factor : V{};
            store<T, bytes, false>(to + c, v, channels - c);
        }
    }

    static T log(T x) {
        if constexpr (sizeof(T) == 4) return __builtin_logf(x);
        else return __builtin_log(x);
    }

    static constexpr Attention<T> table = {rows, piece, finish};
};

}  // namespace
}  // namespace grinnder
