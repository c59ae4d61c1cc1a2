/* Graphs for the SpMM tests. */
#pragma once
#include "check.h"
#include "grinnder_cpu.h"

struct graph {
    int64_t rows, edges, x_rows;
    int64_t *indptr;
    int32_t *indices;
};

/* Row r has `degree(r)` random edges. */
static inline struct graph make_graph(int64_t rows, int64_t x_rows, int64_t (*degree)(int64_t)) {
    struct graph g = {rows, 0, x_rows, array(rows + 1, sizeof(int64_t)), NULL};
    for (int64_t r = 0; r < rows; ++r) g.indptr[r + 1] = g.indptr[r] + degree(r);
    g.edges = g.indptr[rows];
    g.indices = array(g.edges, sizeof(int32_t));
    for (int64_t e = 0; e < g.edges; ++e) g.indices[e] = (int32_t)random_below(x_rows);
    return g;
}

static inline void free_graph(struct graph g) { free(g.indptr), free(g.indices); }

/* Isolated rows, single edges, and a few long ones. */
static inline int64_t mixed_degree(int64_t r) { return r % 5 == 0 ? 0 : r % 97 == 1 ? 150 : r % 7; }

/* One row holds most edges. */
static inline int64_t hub_degree(int64_t r) { return r == 40 ? 60000 : r % 3; }

/* Selects the instruction set named by the first argument, or skips. */
static inline void use_isa(int argc, char **argv) {
    if (argc < 2) return;
    const int code = grinnder_cpu_set_isa(argv[1]);
    if (code == -ENOTSUP) skip("this machine or build lacks the instruction set");
    CHECK(code == 0 && strcmp(grinnder_cpu_isa(), argv[1]) == 0);
}
