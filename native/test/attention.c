/* Attention and its gradient equal plain loops, with long rows, duplicates, dropout and an operand in two pieces; the
 * same bits for any number of threads and any split of the rows; exp to the last digits; impossible arguments. */
#include <math.h>

#include "cpu_graph.h"

enum { rows = 90, nodes = 120, own = 70 };
static const uint32_t key[2] = {0xdeadbeef, 77};
static const double slope = 0.2, p = 0.3;

static int64_t long_degree(int64_t r) { return r == 40 ? 9000 : r % 5 == 0 ? 0 : r % 97 == 1 ? 150 : r % 7; }

static int by_value(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* Row r has `long_degree(r)` sorted edges, some of them equal. */
static struct graph sorted_graph(void) {
    struct graph g = make_graph(rows, nodes, long_degree);
    for (int64_t r = 0; r < rows; ++r)
        qsort(g.indices + g.indptr[r], (size_t)(g.indptr[r + 1] - g.indptr[r]), sizeof(int32_t), by_value);
    return g;
}

/* mask[e * heads + h]; the row's node is the source or the destination of its edges. */
static double *make_mask(struct graph g, int64_t heads, const int64_t *row_ids, const int64_t *ids, int row_is_source,
                         int drop) {
    double *mask = array(g.edges * heads, 8);
    for (int64_t r = 0; r < g.rows; ++r) {
        uint32_t occurrence = 0;
        for (int64_t e = g.indptr[r]; e < g.indptr[r + 1]; ++e) {
            occurrence = e > g.indptr[r] && g.indices[e] == g.indices[e - 1] ? occurrence + 1 : 0;
            for (int64_t h = 0; h < heads; ++h) {
                const uint32_t here = (uint32_t)row_ids[r], there = (uint32_t)ids[g.indices[e]];
                const uint32_t counter[4] = {row_is_source ? here : there, row_is_source ? there : here, occurrence,
                                             (uint32_t)h};
                uint32_t word[4];
                CHECK(grinnder_cpu_philox(counter, key, word) == 0);
                mask[e * heads + h] = !drop ? 1 : word[0] >= (uint32_t)floor(p * 4294967296.0) ? 1 / (1 - p) : 0;
            }
        }
    }
    return mask;
}

static double *randoms(int64_t n) {
    double *x = array(n, 8);
    for (int64_t i = 0; i < n; ++i) x[i] = (float)(2 * random_unit() - 1);
    return x;
}

static void check_close(const double *got, const double *want, int64_t n) {
    double size = 1;
    for (int64_t i = 0; i < n; ++i) size = fmax(size, fabs(want[i]));
    for (int64_t i = 0; i < n; ++i) CHECK(fabs(got[i] - want[i]) <= 1e-12 * size);
}

static void check_forward(struct graph g, int64_t heads, int64_t channels, int drop) {
    const int64_t w = heads * channels;
    double *y = randoms(nodes * w), *s = randoms(nodes * heads), *d = randoms(rows * heads);
    double *out = array(rows * w, 8), *lse = array(rows * heads, 8), *big_q = array(rows * w, 8);
    double *q = array(rows * heads, 8), *wide[2], *narrow[2];
    int64_t row_ids[rows], ids[nodes];
    for (int64_t i = 0; i < rows; ++i) row_ids[i] = 4294967295 - 3 * i;
    for (int64_t i = 0; i < nodes; ++i) ids[i] = 7 * i;
    double *mask = make_mask(g, heads, row_ids, ids, 0, drop);
    for (int i = 0; i < 2; ++i) wide[i] = array(rows * w, 8), narrow[i] = array(rows * heads, 8);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t h = 0; h < heads; ++h) {
            double top = -INFINITY, sum = 0;
            for (int64_t e = g.indptr[r]; e < g.indptr[r + 1]; ++e) {
                const double x = s[g.indices[e] * heads + h] + d[r * heads + h];
                top = fmax(top, x > 0 ? x : slope * x);
            }
            for (int64_t e = g.indptr[r]; e < g.indptr[r + 1]; ++e) {
                const double x = s[g.indices[e] * heads + h] + d[r * heads + h];
                sum += exp((x > 0 ? x : slope * x) - top);
            }
            narrow[0][r * heads + h] = g.indptr[r] < g.indptr[r + 1] ? top + log(sum) : 0;
            for (int64_t e = g.indptr[r]; e < g.indptr[r + 1]; ++e) {
                const double x = s[g.indices[e] * heads + h] + d[r * heads + h], gate = x > 0 ? 1 : slope;
                const double alpha = exp(x * gate - top) / sum;
                narrow[1][r * heads + h] += alpha * gate;
                for (int64_t c = 0; c < channels; ++c) {
                    const double term = alpha * mask[e * heads + h] * y[g.indices[e] * w + h * channels + c];
                    wide[0][r * w + h * channels + c] += term;
                    wide[1][r * w + h * channels + c] += term * gate;
                }
            }
        }
#define ATTEND(n, ip, first, o, l, bq, qq, threads)                                                                   \
    grinnder_cpu_attention_f64(n, g.edges, own, nodes - own, heads, channels, slope, ip, g.indices, y, y + own * w, s, \
                               s + own * heads, d + (first) * heads, row_ids + (first), ids, ids + own, key[0],     \
                               key[1], drop ? p : 0, o, l, bq, qq, threads)
    memset(out, 0xff, (size_t)(rows * w) * 8), memset(big_q, 0xff, (size_t)(rows * w) * 8);
    memset(lse, 0xff, (size_t)(rows * heads) * 8), memset(q, 0xff, (size_t)(rows * heads) * 8);
    CHECK(ATTEND(rows, g.indptr, 0, out, lse, big_q, q, 2) == 0);
    check_close(out, wide[0], rows * w), check_close(big_q, wide[1], rows * w);
    check_close(lse, narrow[0], rows * heads), check_close(q, narrow[1], rows * heads);
    memset(wide[0], 0xff, (size_t)(rows * w) * 8); /* without what backward needs, other threads, rows in pieces */
    CHECK(ATTEND(rows, g.indptr, 0, wide[0], narrow[0], NULL, NULL, 5) == 0);
    CHECK(memcmp(out, wide[0], (size_t)(rows * w) * 8) == 0 && memcmp(lse, narrow[0], (size_t)(rows * heads) * 8) == 0);
    for (int64_t r = 0, n = 1; r < rows; r += n, n = 1 + random_below(30)) {
        if (n > rows - r) n = rows - r;
        CHECK(ATTEND(n, g.indptr + r, r, wide[0] + r * w, narrow[0] + r * heads, wide[1] + r * w, narrow[1] + r * heads,
                     1) == 0);
    }
    CHECK(memcmp(out, wide[0], (size_t)(rows * w) * 8) == 0 && memcmp(big_q, wide[1], (size_t)(rows * w) * 8) == 0);
    CHECK(memcmp(q, narrow[1], (size_t)(rows * heads) * 8) == 0);
    for (int i = 0; i < 2; ++i) free(wide[i]), free(narrow[i]);
    free(y), free(s), free(d), free(out), free(lse), free(big_q), free(q), free(mask);
}

static void check_backward(struct graph g, int64_t heads, int64_t channels, int drop) {
    const int64_t w = heads * channels;
    double *grad = randoms(nodes * w), *edge = randoms(nodes * 3 * heads), *y = randoms(rows * w);
    double *s = randoms(rows * heads), *dd = randoms(rows * heads), *att = randoms(2 * w), *att_dst = att + w;
    double *dy = array(rows * w, 8), *ds = array(rows * heads, 8), *wide = array(rows * w, 8);
    double *narrow = array(rows * heads, 8);
    int64_t row_ids[rows], ids[nodes];
    for (int64_t i = 0; i < rows; ++i) row_ids[i] = 5 * i;
    for (int64_t i = 0; i < nodes; ++i) ids[i] = i;
    double *mask = make_mask(g, heads, row_ids, ids, 1, drop);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t h = 0; h < heads; ++h) {
            double *to = wide + r * w + h * channels;
            for (int64_t e = g.indptr[r]; e < g.indptr[r + 1]; ++e) {
                const double *v = edge + g.indices[e] * 3 * heads + h, *from = grad + g.indices[e] * w + h * channels;
                const double x = s[r * heads + h] + v[0], gate = x > 0 ? 1 : slope, alpha = exp(x * gate - v[heads]);
                double product = 0;
                for (int64_t c = 0; c < channels; ++c) {
                    product += y[r * w + h * channels + c] * from[c];
                    to[c] += alpha * mask[e * heads + h] * from[c];
                }
                narrow[r * heads + h] += alpha * gate * (mask[e * heads + h] * product - v[2 * heads]);
            }
            for (int64_t c = 0; c < channels; ++c)
                to[c] += narrow[r * heads + h] * att[h * channels + c] + dd[r * heads + h] * att_dst[h * channels + c];
        }
#define GRAD(n, ip, first, to, to_s, threads)                                                                         \
    grinnder_cpu_attention_grad_f64(n, g.edges, own, nodes - own, heads, channels, slope, ip, g.indices, grad,        \
                                    grad + own * w, edge, edge + own * 3 * heads, y + (first) * w,                    \
                                    s + (first) * heads, dd + (first) * heads, att, att_dst, row_ids + (first), ids,  \
                                    ids + own, key[0], key[1], drop ? p : 0, to, to_s, threads)
    memset(dy, 0xff, (size_t)(rows * w) * 8), memset(ds, 0xff, (size_t)(rows * heads) * 8);
    CHECK(GRAD(rows, g.indptr, 0, dy, ds, 3) == 0);
    check_close(dy, wide, rows * w), check_close(ds, narrow, rows * heads);
    for (int64_t r = 0, n = 1; r < rows; r += n, n = 1 + random_below(30)) {
        if (n > rows - r) n = rows - r;
        CHECK(GRAD(n, g.indptr + r, r, wide + r * w, narrow + r * heads, 1) == 0);
    }
    CHECK(memcmp(dy, wide, (size_t)(rows * w) * 8) == 0 && memcmp(ds, narrow, (size_t)(rows * heads) * 8) == 0);
    free(grad), free(edge), free(y), free(s), free(dd), free(att), free(dy), free(ds), free(wide), free(narrow);
    free(mask);
}

/* One edge with lse = 0, slope 1 and g = 1: dy is exp of its score. */
static void check_exp(void) {
    enum { n = 1000 };
    int64_t indptr[n + 1];
    int32_t indices[n];
    float x32[n], edge32[3 * n], zero32[n] = {0}, one32[n], dy32[n], ds32[n];
    double x64[n], edge64[3 * n], zero64[n] = {0}, one64[n], dy64[n], ds64[n];
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < n; ++i) {
            indptr[i] = i, indices[i] = i, one32[i] = 1, one64[i] = 1;
            x32[i] = (float)(-110 + 198 * random_unit()), x64[i] = -760 + 1469 * random_unit();
            if (i < 4) x32[i] = (float[]){0, -INFINITY, NAN, -0.0f}[i], x64[i] = x32[i];
            if (i > 500) x32[i] /= 64, x64[i] /= 512;
            edge32[3 * i] = x32[i], edge64[3 * i] = x64[i];
            edge32[3 * i + 1] = edge32[3 * i + 2] = 0, edge64[3 * i + 1] = edge64[3 * i + 2] = 0;
        }
        indptr[n] = n;
        CHECK(grinnder_cpu_attention_grad_f32(n, n, n, 0, 1, 1, 1.0, indptr, indices, one32, NULL, edge32, NULL, zero32,
                                              zero32, zero32, zero32, zero32, NULL, NULL, NULL, 0, 0, 0, dy32, ds32,
                                              1) == 0);
        CHECK(grinnder_cpu_attention_grad_f64(n, n, n, 0, 1, 1, 1.0, indptr, indices, one64, NULL, edge64, NULL, zero64,
                                              zero64, zero64, zero64, zero64, NULL, NULL, NULL, 0, 0, 0, dy64, ds64,
                                              1) == 0);
        for (int i = 0; i < n; ++i) {
            const double want32 = exp((double)x32[i]);
            const long double want64 = expl((long double)x64[i]);
            if (isnan(x32[i])) {
                CHECK(isnan(dy32[i]) && isnan(dy64[i]));
                continue;
            }
            CHECK(fabs(dy32[i] - want32) <= 1.8e-7 * want32 + 1e-45); /* 1.5 units in the last place */
            CHECK(fabsl(dy64[i] - want64) <= 3.4e-16L * want64 + 5e-324L);
        }
    }
}

static void check_arguments(void) {
    int64_t indptr[] = {0, 2, 2}, ids[] = {0, 4294967295, 1};
    int32_t indices[] = {0, 2};
    float y[6] = {0}, s[3] = {0}, d[2] = {0}, out[4], lse[2], big_q[4], q[2];
#define CALL(edges, own_rows, slope_, ip, ids_, p_, bq, threads)                                                       \
    grinnder_cpu_attention_f32(2, edges, own_rows, 0, 1, 2, slope_, ip, indices, y, NULL, s, NULL, d, ids, ids_, NULL, \
                               0, 0, p_, out, lse, bq, q, threads)
    CHECK(CALL(2, 3, 0.2, indptr, ids, 0.5, big_q, 1) == 0);
    CHECK(out[2] == 0 && lse[1] == 0 && q[1] == 0 && big_q[3] == 0);
    CHECK(CALL(1, 3, 0.2, indptr, ids, 0.5, big_q, 1) == -ERANGE);
    CHECK(CALL(2, 2, 0.2, indptr, ids, 0.5, big_q, 1) == -ERANGE);
    CHECK(CALL(2, 3, 0.0, indptr, ids, 0.5, big_q, 1) == -EINVAL);
    CHECK(CALL(2, 3, 0.2, NULL, ids, 0.5, big_q, 1) == -EINVAL);
    CHECK(CALL(2, 3, 0.2, indptr, NULL, 0.5, big_q, 1) == -EINVAL);
    CHECK(CALL(2, 3, 0.2, indptr, ids, 1.0, big_q, 1) == -EINVAL);
    CHECK(CALL(2, 3, 0.2, indptr, ids, 0.5, NULL, 1) == -EINVAL); /* q without big_q */
    CHECK(CALL(2, 3, 0.2, indptr, ids, 0.5, big_q, 0) == -EINVAL);
    ids[2] = 4294967296;
    CHECK(CALL(2, 3, 0.2, indptr, ids, 0.5, big_q, 1) == -EOVERFLOW);
    int64_t falling[] = {0, 2, 1};
    CHECK(CALL(2, 3, 0.2, falling, NULL, 0.0, big_q, 1) == -ERANGE);
}

int main(int argc, char **argv) {
    use_isa(argc, argv);
    struct graph g = sorted_graph();
    const int64_t channels[] = {1, 2, 3, 5, 8, 17, 21, 33, 64, 65};
    for (int k = 0; k < 10; ++k)
        for (int64_t heads = 1; heads <= 3; heads += 2) {
            check_forward(g, heads, channels[k], k % 2);
            check_backward(g, heads, channels[k], k % 2);
        }
    free_graph(g);
    check_exp();
    check_arguments();
    return 0;
}
