/* SpMM equals a plain loop, for every kind of width, with and without weight and scale, in both types. */
#include <string.h>
#include <math.h>

#include "cpu_graph.h"

static const int64_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 64, 65, 100, 128, 129, 256, 257, 520};

int main(int argc, char **argv) {
    use_isa(argc, argv);
    struct graph g = make_graph(300, 211, mixed_degree);
    for (size_t k = 0; k < sizeof widths / sizeof *widths; ++k) {
        const int64_t w = widths[k];
        double *x64 = array(g.x_rows * w, 8), *weight64 = array(g.edges, 8), *scale64 = array(g.rows, 8);
        float *x32 = array(g.x_rows * w, 4), *weight32 = array(g.edges, 4), *scale32 = array(g.rows, 4);
        double *out64 = array(g.rows * w, 8), *halo64 = array(g.x_rows * w, 8); /* the second piece lies elsewhere */
        float *out32 = array(g.rows * w, 4);
        for (int64_t i = 0; i < g.x_rows * w; ++i) x64[i] = x32[i] = (float)(random_unit() - 0.5);
        for (int64_t i = 0; i < g.edges; ++i) weight64[i] = weight32[i] = (float)random_unit();
        for (int64_t i = 0; i < g.rows; ++i) scale64[i] = scale32[i] = (float)(random_unit() + 0.5);
        for (int kind = 0; kind < 4; ++kind) {
            const int weighted = kind & 1, scaled = kind & 2;
            const int64_t own = kind * g.x_rows / 3; /* the operand in two pieces, either of them empty once */
            memcpy(halo64, x64 + own * w, (size_t)((g.x_rows - own) * w) * 8);
            for (int64_t i = 0; i < g.rows * w; ++i) out64[i] = out32[i] = NAN; /* every element must be written */
            CHECK(grinnder_cpu_spmm_f32(g.rows, g.edges, own, g.x_rows - own, w, g.indptr, g.indices,
                                        weighted ? weight32 : NULL, scaled ? scale32 : NULL, x32, x32 + own * w, out32,
                                        2) == 0);
            CHECK(grinnder_cpu_spmm_f64(g.rows, g.edges, own, g.x_rows - own, w, g.indptr, g.indices,
                                        weighted ? weight64 : NULL, scaled ? scale64 : NULL, x64, halo64, out64, 2) == 0);
            for (int64_t r = 0; r < g.rows; ++r)
                for (int64_t j = 0; j < w; ++j) {
                    double sum = 0, size = 0;
                    for (int64_t e = g.indptr[r]; e < g.indptr[r + 1]; ++e) {
                        const double term = (weighted ? weight64[e] : 1) * x64[g.indices[e] * w + j];
                        sum += term;
                        size += fabs(term);
                    }
                    if (scaled) sum *= scale64[r], size *= scale64[r];
                    CHECK(fabs(out64[r * w + j] - sum) <= 1e-13 * size);
                    CHECK(fabs(out32[r * w + j] - sum) <= 2e-5 * size);
                }
        }
        free(x64), free(weight64), free(scale64), free(out64), free(halo64), free(x32), free(weight32), free(scale32), free(out32);
    }
    free_graph(g);
    return 0;
}
