/* The same bits for any number of threads, any split of the rows into calls, and any neighbouring columns. */
#include "cpu_graph.h"

/* Frees g. */
static void same_bits(struct graph g, int64_t w) {
    float *x = array(g.x_rows * w, 4), *weight = array(g.edges, 4);
    float *once = array(g.rows * w, 4), *again = array(g.rows * w, 4);
    const size_t bytes = (size_t)(g.rows * w) * 4;
    for (int64_t i = 0; i < g.x_rows * w; ++i) x[i] = (float)(random_unit() - 0.5);
    for (int64_t i = 0; i < g.edges; ++i) weight[i] = (float)random_unit();
    CHECK(grinnder_cpu_spmm_f32(g.rows, g.edges, g.x_rows, 0, w, g.indptr, g.indices, weight, NULL, x, NULL, once, 1) == 0);
    for (int threads = 2; threads <= 5; ++threads) {
        memset(again, 0xff, bytes);
        CHECK(grinnder_cpu_spmm_f32(g.rows, g.edges, g.x_rows, 0, w, g.indptr, g.indices, weight, NULL, x, NULL, again,
                                    threads) == 0);
        CHECK(memcmp(once, again, bytes) == 0);
    }
    memset(again, 0xff, bytes);
    for (int64_t r = 0, n = 1; r < g.rows; r += n, n = 1 + random_below(60)) { /* slices share indptr and indices */
        if (n > g.rows - r) n = g.rows - r;
        CHECK(grinnder_cpu_spmm_f32(n, g.edges, g.x_rows, 0, w, g.indptr + r, g.indices, weight, NULL, x, NULL, again + r * w,
                                    3) == 0);
    }
    CHECK(memcmp(once, again, bytes) == 0);
    const int64_t some[] = {1, 3, 8, 20}; /* a narrower x with the same first columns */
    for (int k = 0; k < 4 && some[k] < w; ++k) {
        const int64_t v = some[k];
        float *narrow = array(g.x_rows * v, 4);
        for (int64_t i = 0; i < g.x_rows; ++i) memcpy(narrow + i * v, x + i * w, (size_t)v * 4);
        CHECK(grinnder_cpu_spmm_f32(g.rows, g.edges, g.x_rows, 0, v, g.indptr, g.indices, weight, NULL, narrow, NULL, again,
                                    2) == 0);
        for (int64_t r = 0; r < g.rows; ++r) CHECK(memcmp(again + r * v, once + r * w, (size_t)v * 4) == 0);
        free(narrow);
    }
    free(x), free(weight), free(once), free(again), free_graph(g);
}

int main(int argc, char **argv) {
    use_isa(argc, argv);
    const int64_t widths[] = {1, 3, 47, 65, 128, 257};
    for (int k = 0; k < 6; ++k) {
        same_bits(make_graph(5000, 777, mixed_degree), widths[k]);
        same_bits(make_graph(200, 500, hub_degree), widths[k]);
    }
    return 0;
}
