/* The fused row-wise kernel equals plain loops in double, forward and backward, for every kind of width and every choice
 * of what is absent, in both types; the same bits for any threads, split into calls or alignment. */
#include <math.h>

#include "cpu_graph.h"

enum { rows = 37, many = 1500 };
static const int64_t widths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 128, 129, 256, 257, 1024};

/* All in double; index j of [width], i of [rows, width]. */
struct data {
    int64_t n, w;
    double *z, *bias, *gamma, *beta, *skip, *scale, *g_hs, *g_h;
    int64_t *ids;
    double *hs, *h, *dz, *dskip, *dgamma, *dbeta, *dbias;
};

static double *random_values(int64_t n) {
    double *v = array(n, 8);
    for (int64_t i = 0; i < n; ++i) v[i] = (float)(2 * random_unit() - 1); /* the same number in both types */
    return v;
}

static struct data make(int64_t n, int64_t w) {
    struct data d = {.n = n, .w = w};
    d.z = random_values(n * w), d.skip = random_values(n * w);
    d.g_hs = random_values(n * w), d.g_h = random_values(n * w);
    d.bias = random_values(w), d.gamma = random_values(w), d.beta = random_values(w), d.scale = random_values(n);
    d.hs = array(n * w, 8), d.h = array(n * w, 8), d.dz = array(n * w, 8), d.dskip = array(n * w, 8);
    d.dgamma = array(w, 8), d.dbeta = array(w, 8), d.dbias = array(w, 8);
    d.ids = array(n, 8);
    for (int64_t r = 0; r < n; ++r) d.ids[r] = (r * 7919) ^ (r % 3 ? 0 : (int64_t)9 << 33);
    return d;
}

static void release(struct data d) {
    free(d.z), free(d.skip), free(d.g_hs), free(d.g_h), free(d.bias), free(d.gamma), free(d.beta), free(d.scale);
    free(d.hs), free(d.h), free(d.dz), free(d.dskip), free(d.dgamma), free(d.dbeta), free(d.dbias), free(d.ids);
}

/* `kind`: bits of what is present. */
enum { BIAS = 1, NORM = 2, BETA = 4, SKIP = 8, SCALE = 16, G_HS = 32, G_H = 64, kinds = 128 };

static const uint32_t key[2] = {12345, 0xfffffff0};
static const double eps = 1e-5;

static void reference(struct data *d, int kind, double p) {
    const int64_t w = d->w;
    const uint32_t threshold = (uint32_t)floor(p * 4294967296.0);
    double *n = array(w, 8), *dn = array(w, 8);
    for (int64_t j = 0; j < w; ++j) d->dgamma[j] = d->dbeta[j] = d->dbias[j] = 0;
    for (int64_t r = 0; r < d->n; ++r) {
        double mean = 0, variance = 0, rstd = 1, sum = 0, product = 0;
        for (int64_t j = 0; j < w; ++j) {
            n[j] = d->z[r * w + j] + (kind & BIAS ? d->bias[j] : 0);
            mean += n[j] / (double)w;
        }
        for (int64_t j = 0; j < w; ++j) variance += (n[j] - mean) * (n[j] - mean) / (double)w;
        if (kind & NORM) {
            rstd = 1 / sqrt(variance + eps);
            for (int64_t j = 0; j < w; ++j) n[j] = (n[j] - mean) * rstd;
        }
        for (int64_t j = 0; j < w; ++j) {
            const int64_t i = r * w + j;
            const double factor = kind & NORM ? d->gamma[j] : 1, scale = kind & SCALE ? d->scale[r] : 1;
            const double a = n[j] * factor + (kind & NORM && kind & BETA ? d->beta[j] : 0) + (kind & SKIP ? d->skip[i] : 0);
            const uint32_t counter[4] = {(uint32_t)d->ids[r], (uint32_t)(d->ids[r] >> 32), (uint32_t)(j / 4), 0};
            uint32_t word[4];
            CHECK(grinnder_cpu_philox(counter, key, word) == 0);
            const double pass = a > 0 && word[j % 4] >= threshold ? 1 / (1 - p) : 0;
            d->h[i] = pass * a;
            d->hs[i] = scale * d->h[i];
            d->dskip[i] = pass * ((kind & G_HS ? scale * d->g_hs[i] : 0) + (kind & G_H ? d->g_h[i] : 0));
            d->dbeta[j] += d->dskip[i];
            d->dgamma[j] += d->dskip[i] * n[j];
            dn[j] = d->dskip[i] * factor;
            sum += dn[j] / (double)w;
            product += dn[j] * n[j] / (double)w;
        }
        for (int64_t j = 0; j < w; ++j) {
            d->dz[r * w + j] = kind & NORM ? rstd * (dn[j] - sum - n[j] * product) : dn[j];
            d->dbias[j] += d->dz[r * w + j];
        }
    }
    free(n), free(dn);
}

/* The kernels on type T; every array starts `shift` elements behind an aligned address. */
#define TYPED(T, suffix)                                                                                              \
    static T *copy_##suffix(const double *from, int64_t n, int64_t shift) {                                           \
        T *to = (T *)array(n + shift, sizeof(T)) + shift;                                                             \
        for (int64_t i = 0; i < n; ++i) to[i] = from ? (T)from[i] : (T)NAN;                                           \
        return to;                                                                                                    \
    }                                                                                                                 \
    static void close_##suffix(const T *got, const double *expected, int64_t n, double tolerance) {                   \
        double largest = 1;                                                                                           \
        for (int64_t i = 0; i < n; ++i) largest = fmax(largest, fabs(expected[i]));                                   \
        for (int64_t i = 0; i < n; ++i) CHECK(fabs(got[i] - expected[i]) <= tolerance * largest);                     \
    }                                                                                                                 \
    static void compare_##suffix(struct data *d, int kind, double p, int threads, double tolerance) {                 \
        const int64_t w = d->w, n = d->n, size = n * w, s = kind % 3;                                                 \
        T *z = copy_##suffix(d->z, size, s), *skip = copy_##suffix(d->skip, size, s);                                 \
        T *bias = copy_##suffix(d->bias, w, s), *gamma = copy_##suffix(d->gamma, w, s);                               \
        T *beta = copy_##suffix(d->beta, w, s), *scale = copy_##suffix(d->scale, n, s);                               \
        T *g_hs = copy_##suffix(d->g_hs, size, s), *g_h = copy_##suffix(d->g_h, size, s);                             \
        T *hs = copy_##suffix(NULL, size, s), *h = copy_##suffix(NULL, size, s);                                      \
        T *dz = copy_##suffix(NULL, size, s), *dskip = copy_##suffix(NULL, size, s);                                  \
        T *dgamma = copy_##suffix(NULL, w, s), *dbeta = copy_##suffix(NULL, w, s), *dbias = copy_##suffix(NULL, w, s);\
        const int norm = kind & NORM;                                                                                 \
        CHECK(grinnder_cpu_norm_act_##suffix(n, w, z, kind & BIAS ? bias : NULL, norm ? gamma : NULL,                 \
                                             norm && kind & BETA ? beta : NULL, eps, kind & SKIP ? skip : NULL,       \
                                             kind & SCALE ? scale : NULL, d->ids, key[0], key[1], p, hs,              \
                                             kind & G_H ? h : NULL, threads) == 0);                                   \
        close_##suffix(hs, d->hs, size, tolerance);                                                                   \
        if (kind & G_H) close_##suffix(h, d->h, size, tolerance);                                                     \
        CHECK(grinnder_cpu_norm_act_grad_##suffix(n, w, z, kind & BIAS ? bias : NULL, norm ? gamma : NULL,            \
                                                  norm && kind & BETA ? beta : NULL, eps, kind & SKIP ? skip : NULL,  \
                                                  kind & SCALE ? scale : NULL, d->ids, key[0], key[1], p,             \
                                                  kind & G_HS ? g_hs : NULL, kind & G_H ? g_h : NULL, dz,             \
                                                  kind & SKIP ? dskip : NULL, norm ? dgamma : NULL,                   \
                                                  norm ? dbeta : NULL, kind & BIAS ? dbias : NULL, threads) == 0);    \
        close_##suffix(dz, d->dz, size, tolerance);                                                                   \
        if (kind & SKIP) close_##suffix(dskip, d->dskip, size, tolerance);                                            \
        if (norm) close_##suffix(dgamma, d->dgamma, w, tolerance), close_##suffix(dbeta, d->dbeta, w, tolerance);     \
        if (kind & BIAS) close_##suffix(dbias, d->dbias, w, tolerance);                                               \
        free(z - s), free(skip - s), free(bias - s), free(gamma - s), free(beta - s), free(scale - s);                \
        free(g_hs - s), free(g_h - s), free(hs - s), free(h - s), free(dz - s), free(dskip - s);                      \
        free(dgamma - s), free(dbeta - s), free(dbias - s);                                                           \
    }
TYPED(double, f64)
TYPED(float, f32)

/* Everything present, doubles: forward into out[0..2), backward into out[2..7). */
static void all(const struct data *d, int64_t first, int64_t n, double *const *out, int threads) {
    const int64_t at = first * d->w;
    CHECK(grinnder_cpu_norm_act_f64(n, d->w, d->z + at, d->bias, d->gamma, d->beta, eps, d->skip + at, d->scale + first,
                                    d->ids + first, key[0], key[1], 0.5, out[0] + at, out[1] + at, threads) == 0);
    CHECK(grinnder_cpu_norm_act_grad_f64(n, d->w, d->z + at, d->bias, d->gamma, d->beta, eps, d->skip + at,
                                         d->scale + first, d->ids + first, key[0], key[1], 0.5, d->g_hs + at,
                                         d->g_h + at, out[2] + at, out[3] + at, out[4], out[5], out[6], threads) == 0);
}

static void same_bits(int64_t w) {
    struct data d = make(many, w);
    double *once[7], *again[7];
    for (int k = 0; k < 7; ++k) once[k] = array(many * w, 8), again[k] = array(many * w, 8);
    all(&d, 0, many, once, 1);
    for (int threads = 1; threads <= 4; ++threads) {
        for (int k = 0; k < 7; ++k) memset(again[k], 0xff, (size_t)(many * w) * 8);
        all(&d, 0, many, again, threads);
        for (int k = 0; k < 7; ++k) CHECK(memcmp(once[k], again[k], (size_t)(k < 4 ? many * w : w) * 8) == 0);
    }
    for (int k = 0; k < 7; ++k) memset(again[k], 0xff, (size_t)(many * w) * 8);
    for (int64_t r = 0, n = 1; r < many; r += n, n = 1 + random_below(300)) {
        if (n > many - r) n = many - r;
        all(&d, r, n, again, 2);
    }
    for (int k = 0; k < 4; ++k) CHECK(memcmp(once[k], again[k], (size_t)(many * w) * 8) == 0);
    /* outputs in place of the inputs they may replace: forward's over skip, then from fresh data over z */
    double *place = array(many * w, 8);
    for (int kind = 0; kind < 2; ++kind) {
        memcpy(place, kind ? d.z : d.skip, (size_t)(many * w) * 8);
        CHECK(grinnder_cpu_norm_act_f64(many, w, kind ? place : d.z, d.bias, d.gamma, d.beta, eps,
                                        kind ? d.skip : place, d.scale, d.ids, key[0], key[1], 0.5, place, NULL,
                                        2) == 0);
        CHECK(memcmp(place, once[0], (size_t)(many * w) * 8) == 0);
    }
    memcpy(again[0], d.g_hs, (size_t)(many * w) * 8), memcpy(again[1], d.g_h, (size_t)(many * w) * 8);
    CHECK(grinnder_cpu_norm_act_grad_f64(many, w, d.z, d.bias, d.gamma, d.beta, eps, d.skip, d.scale, d.ids, key[0],
                                         key[1], 0.5, again[0], again[1], again[0], again[1], NULL, NULL, NULL,
                                         2) == 0);
    for (int k = 0; k < 2; ++k) CHECK(memcmp(again[k], once[2 + k], (size_t)(many * w) * 8) == 0);
    for (int k = 0; k < 7; ++k) free(once[k]), free(again[k]);
    free(place), release(d);
}

static void arguments(void) {
    float z[4] = {1, NAN, 3, -4}, out[4], sum[2];
    int64_t ids[2] = {0, 1};
#define FORWARD(n, w, zz, gamma, beta, e, ids, p, hs, threads) \
    grinnder_cpu_norm_act_f32(n, w, zz, NULL, gamma, beta, e, NULL, NULL, ids, 0, 0, p, hs, NULL, threads)
    CHECK(FORWARD(2, 2, z, NULL, NULL, 0, NULL, 0, out, 1) == 0);
    CHECK(out[0] == 1 && isnan(out[1]) && out[2] == 3 && out[3] == 0); /* NaN is not hidden */
    CHECK(FORWARD(0, 2, NULL, NULL, NULL, 0, NULL, 0.5, NULL, 1) == 0);
    CHECK(FORWARD(2, 0, NULL, NULL, NULL, 0, NULL, 0.5, NULL, 1) == 0);
    CHECK(FORWARD(-1, 2, z, NULL, NULL, 0, NULL, 0, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, NULL, NULL, NULL, 0, NULL, 0, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, 0, NULL, 0, NULL, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, z, 0, NULL, 0, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, -1, NULL, 0, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, NAN, NULL, 0, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, 0, NULL, 0.5, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, 0, ids, 1.0, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, 0, ids, NAN, out, 1) == -EINVAL);
    CHECK(FORWARD(2, 2, z, NULL, NULL, 0, ids, 0.5, out, 0) == -EINVAL);
#define BACKWARD(n, gamma, dgamma, dbias) \
    grinnder_cpu_norm_act_grad_f32(n, 2, z, NULL, gamma, NULL, 0, NULL, NULL, NULL, 0, 0, 0, z, NULL, out, NULL, \
                                   dgamma, NULL, dbias, 1)
    sum[0] = sum[1] = NAN;
    CHECK(BACKWARD(0, NULL, NULL, sum) == 0 && sum[0] == 0 && sum[1] == 0);
    CHECK(BACKWARD(2, NULL, NULL, sum) == 0 && sum[0] == 4 && isnan(sum[1]) && out[3] == 0);
    CHECK(BACKWARD(2, NULL, sum, NULL) == -EINVAL);
}

int main(int argc, char **argv) {
    use_isa(argc, argv);
    arguments();
    for (size_t k = 0; k < sizeof widths / sizeof *widths; ++k)
        for (int kind = 0; kind < kinds; kind += widths[k] > 200 ? 5 : 1)
            for (int dropped = 0; dropped < 2; ++dropped) {
                struct data d = make(rows, widths[k]);
                const double p = dropped ? 0.3 : 0;
                reference(&d, kind, p);
                compare_f64(&d, kind, p, 2, 1e-12);
                /* floats from the same numbers; a width of 1 or 2 divides by a variance of almost nothing */
                if (widths[k] > 2 || !(kind & NORM)) compare_f32(&d, kind, p, 2, 1e-4);
                release(d);
            }
    const int64_t some[] = {1, 3, 47, 65, 128, 257};
    for (int k = 0; k < 6; ++k) same_bits(some[k]);
    return 0;
}
