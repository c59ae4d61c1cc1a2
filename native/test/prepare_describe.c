/* Counts between parts against a slow count; equal for any threads and any split of the rows; symmetry is seen. */
#include "check.h"
#include "grinnder_prepare.h"

enum { NODES = 400, PARTS = 9, DEGREE = 110, EDGES = NODES * DEGREE };

static int64_t indptr[NODES + 1], halo[PARTS][PARTS], edges_in[PARTS], edges_out[PARTS];
static int32_t indices[EDGES], assign[NODES];
static float weight[EDGES];
static uint8_t boundary[NODES];
static uint64_t masks[NODES];

static int describe(const void *edges, int index_bytes, const void *weights, int64_t split, int threads,
                    uint64_t *marks) {
    int64_t cut = 0;
    memset(halo, 0, sizeof halo), memset(edges_in, 0, sizeof edges_in), memset(edges_out, 0, sizeof edges_out);
    memset(boundary, 0, sizeof boundary), memset(marks, 0, 4 * sizeof *marks);
    for (int64_t first = 0; first < NODES; first += split) {
        const int64_t last = first + split < NODES ? first + split : NODES;
        const int code =
            grinnder_prepare_describe(NODES, PARTS, first, last, indptr, index_bytes, edges, weights ? 4 : 0, weights,
                                      assign, boundary, edges_in, edges_out, &halo[0][0], marks, &cut, threads);
        if (code) return code;
    }
    return (int)cut;
}

int main(void) {
    static char pair[PARTS][NODES];
    int64_t wanted_in[PARTS] = {0}, wanted_halo[PARTS][PARTS] = {{0}}, cut = 0;
    for (int v = 0; v < NODES; ++v) assign[v] = (int32_t)random_below(PARTS);
    for (int v = 0; v < NODES; ++v) {
        indptr[v + 1] = indptr[v] + DEGREE;
        for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e) {
            const int32_t u = indices[e] = (int32_t)random_below(NODES);
            weight[e] = (float)random_unit();
            if (u == v) continue;
            ++wanted_in[assign[v]];
            if (assign[u] == assign[v]) continue;
            ++cut;
            if (!pair[assign[u]][v]) pair[assign[u]][v] = 1, ++wanted_halo[assign[u]][assign[v]];
        }
    }
    uint64_t marks[4], again[4];
    CHECK(describe(indices, 4, weight, NODES, 1, marks) == cut);
    CHECK(!memcmp(halo, wanted_halo, sizeof halo) && !memcmp(edges_in, wanted_in, sizeof edges_in));
    CHECK(marks[0] != marks[2] && marks[1] != marks[3]);
    CHECK(describe(indices, 4, weight, 17, 3, again) == cut);
    CHECK(!memcmp(halo, wanted_halo, sizeof halo) && !memcmp(marks, again, sizeof marks));

    for (int threads = 1; threads < 4; ++threads) { /* who reads u */
        memset(masks, 0, sizeof masks);
        CHECK(grinnder_prepare_readers(NODES, 0, 0, NODES, indptr, 4, indices, assign, masks, threads) == 0);
        static uint64_t wanted[NODES];
        memset(wanted, 0, sizeof wanted);
        for (int v = 0; v < NODES; ++v)
            for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e)
                if (assign[indices[e]] != assign[v]) wanted[indices[e]] |= (uint64_t)1 << assign[v];
        CHECK(!memcmp(masks, wanted, sizeof masks));
    }
    static int64_t halo_in[PARTS][PARTS], readers = 0;
    for (int u = 0; u < NODES; ++u) readers += __builtin_popcountll(masks[u]);
    CHECK(grinnder_prepare_count_readers(NODES, PARTS, 0, masks, assign, &halo_in[0][0]) == 0);
    for (int p = 0; p < PARTS; ++p)
        for (int q = 0; q < PARTS; ++q) {
            readers -= halo_in[p][q];
            CHECK(p != q || !halo_in[p][q]);
        }
    CHECK(readers == 0);
    CHECK(grinnder_prepare_count_readers(NODES, PARTS, PARTS - 1, masks, assign, &halo_in[0][0]) == -ERANGE);
    /* a ring both ways is symmetric, with int64 indices too */
    static int64_t ring[EDGES];
    for (int v = 0; v < NODES; ++v) {
        indptr[v + 1] = 2 * (v + 1);
        ring[2 * v] = (v + 1) % NODES;
        ring[2 * v + 1] = (v + NODES - 1) % NODES;
    }
    CHECK(describe(ring, 8, NULL, NODES, 2, marks) >= 0);
    CHECK(marks[0] == marks[2] && marks[1] == marks[3]);
    ring[0] = NODES;
    CHECK(describe(ring, 8, NULL, NODES, 2, marks) == -ERANGE);
    ring[0] = 1;
    assign[3] = PARTS;
    CHECK(describe(ring, 8, NULL, NODES, 2, marks) == -ERANGE);
    CHECK(describe(ring, 3, NULL, NODES, 2, marks) == -EINVAL);
    return 0;
}
