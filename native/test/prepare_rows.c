/* Rows from edges in any order: sorted, equal edges in input order, the last of them where one stays; any threads. */
#include "check.h"
#include "grinnder_prepare.h"

enum { EDGES = 60000, COLUMNS = 700, FIRST = 5, ROWS = 40 };

static int64_t keys[EDGES], counts[ROWS], wide[EDGES];
static int32_t indices[EDGES];
static double weight[EDGES], sorted[EDGES];

static void check_rows(int unique, int threads, int index_bytes) {
    int64_t kept = -1, loops = -1, at = 0, seen_loops = 0;
    memset(counts, 0, sizeof counts);
    void *out = index_bytes == 4 ? (void *)indices : (void *)wide;
    CHECK(grinnder_prepare_rows(EDGES, keys, COLUMNS, FIRST, ROWS, 8, weight, unique, index_bytes, counts, out, sorted,
                                &kept, &loops, threads) == 0);
    for (int64_t row = 0; row < ROWS; ++row) {
        const int64_t end = at + counts[row];
        for (int64_t first = at; at < end; ++at) {
            const int64_t column = index_bytes == 4 ? indices[at] : wide[at];
            const int64_t input = (int64_t)sorted[at]; /* a weight tells where its edge stood */
            CHECK(keys[input] == (FIRST + row) * COLUMNS + column);
            seen_loops += column == FIRST + row;
            if (at > first) {
                const int64_t before = index_bytes == 4 ? indices[at - 1] : wide[at - 1];
                CHECK(before < column || (before == column && !unique && sorted[at - 1] < sorted[at]));
            }
        }
    }
    CHECK(at == kept && loops == seen_loops);
    if (!unique) CHECK(kept == EDGES);
    for (int64_t i = 0; unique && i < kept; i += 97) /* no equal edge stands behind the one that stays */
        for (int64_t later = (int64_t)sorted[i] + 1; later < EDGES; ++later) CHECK(keys[later] != keys[(int64_t)sorted[i]]);
}

int main(void) {
    for (int64_t i = 0; i < EDGES; ++i) {
        const int64_t row = i % 3 ? random_below(ROWS) : 7; /* a long row */
        keys[i] = (FIRST + row) * COLUMNS + random_below(COLUMNS);
        weight[i] = (double)i;
    }
    for (int unique = 0; unique < 2; ++unique)
        for (int threads = 1; threads < 6; threads += 2) check_rows(unique, threads, threads == 3 ? 8 : 4);
    int64_t kept, loops;
#define CALL(count, k, columns, rows, threads) \
    grinnder_prepare_rows(count, k, columns, FIRST, rows, 0, NULL, 0, 4, counts, indices, NULL, &kept, &loops, threads)
    CHECK(CALL(EDGES, keys, COLUMNS, ROWS, 1) == 0);
    CHECK(CALL(0, NULL, COLUMNS, ROWS, 1) == 0 && kept == 0);
    CHECK(CALL(0, NULL, 0, 0, 1) == 0);
    CHECK(CALL(EDGES, keys, COLUMNS, ROWS - 1, 2) == -ERANGE);
    CHECK(CALL(EDGES, NULL, COLUMNS, ROWS, 1) == -EINVAL);
    CHECK(CALL(-1, keys, COLUMNS, ROWS, 1) == -EINVAL);
    CHECK(CALL(EDGES, keys, COLUMNS, ROWS, 0) == -EINVAL);
    keys[3] = -1;
    CHECK(CALL(EDGES, keys, COLUMNS, ROWS, 2) == -ERANGE);
    CHECK(grinnder_prepare_version() == 1);
    return 0;
}
