/* Parts of every objective: each node in one, none above the cap, the same bytes on any number of threads; bad
 * arguments are refused, and a stop is heard. */
#include "check.h"
#include "grinnder_partition.h"

typedef struct {
    int64_t n, edges;
    int64_t *ptr;
    int32_t *idx;
} graph;

static void drop(graph g) {
    free(g.ptr);
    free(g.idx);
}

/* side x side nodes, edges to the right and down only: directed on purpose. */
static graph grid(int64_t side) {
    graph g = {side * side, 0, array(side * side + 1, 8), array(2 * side * side, 4)};
    for (int64_t v = 0; v < g.n; ++v) {
        if (v % side + 1 < side) g.idx[g.edges++] = (int32_t)(v + 1);
        if (v + side < g.n) g.idx[g.edges++] = (int32_t)(v + side);
        g.ptr[v + 1] = g.edges;
    }
    return g;
}

static grinnder_partition_options options(int parts, int objective, int start, int threads) {
    grinnder_partition_options o = {parts, objective, start, 50, threads, 1.1, 1.05, 7};
    return o;
}

static int run(graph g, grinnder_partition_options o, int32_t *part, grinnder_partition_progress *progress) {
    memset(progress, 0, sizeof *progress);
    return grinnder_partition_run(g.n, g.edges, g.ptr, g.idx, &o, part, progress);
}

static void check_parts(graph g, int parts, const int32_t *part) {
    int64_t *size = array(parts, 8), cap = (int64_t)(1.1 * (double)g.n / parts);
    if (cap < (g.n + parts - 1) / parts) cap = (g.n + parts - 1) / parts;
    for (int64_t v = 0; v < g.n; ++v) {
        CHECK(part[v] >= 0 && part[v] < parts);
        ++size[part[v]];
    }
    for (int p = 0; p < parts; ++p) CHECK(size[p] <= cap);
    free(size);
}

static int64_t cut(graph g, const int32_t *part) {
    int64_t crossing = 0;
    for (int64_t v = 0; v < g.n; ++v)
        for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e) crossing += part[v] != part[g.idx[e]];
    return crossing;
}

int main(void) {
    grinnder_partition_progress progress;
    graph g = grid(150);
    int32_t *one = array(g.n, 4), *many = array(g.n, 4);
    CHECK(grinnder_partition_version() == 1);
    for (int objective = 0; objective < 3; ++objective)
        for (int start = 0; start < (objective ? 1 : 2); ++start)
            for (int parts = 1; parts <= 64; parts = parts * 3 + 1) {
                CHECK(run(g, options(parts, objective, start, 1), one, &progress) == 0);
                check_parts(g, parts, one);
                CHECK(run(g, options(parts, objective, start, 5), many, &progress) == 0);
                CHECK(memcmp(one, many, (size_t)g.n * 4) == 0);
                CHECK(parts == 1 || (progress.rounds > 0 && progress.phase == 7 && progress.edges == 2 * g.edges));
            }
    CHECK(run(g, options(4, 0, 0, 2), one, &progress) == 0);
    CHECK(cut(g, one) < 600); /* two straight lines cut 300 */

    CHECK(run(g, options(0, 0, 0, 1), one, &progress) == -EINVAL);
    CHECK(run(g, options(4097, 0, 0, 1), one, &progress) == -EINVAL);
    CHECK(run(g, options(2, 3, 0, 1), one, &progress) == -EINVAL);
    CHECK(run(g, options(2, 0, 2, 1), one, &progress) == -EINVAL);
    CHECK(run(g, options(2, 0, 0, 0), one, &progress) == -EINVAL);
    CHECK(run(g, options(2, 0, 0, 1), NULL, &progress) == -EINVAL);
    g.idx[5] = (int32_t)g.n;
    CHECK(run(g, options(2, 0, 0, 2), one, &progress) == -ERANGE);
    g.idx[5] = -1;
    CHECK(run(g, options(2, 0, 0, 2), one, &progress) == -ERANGE);
    g.idx[5] = 0;
    g.ptr[9] = g.edges + 1;
    CHECK(run(g, options(2, 0, 0, 2), one, &progress) == -ERANGE);

    graph empty = {0, 0, array(1, 8), NULL};
    CHECK(run(empty, options(3, 0, 0, 2), NULL, &progress) == 0);
    graph bare = {100, 0, array(101, 8), NULL};
    CHECK(run(bare, options(7, 0, 0, 2), one, &progress) == 0);
    check_parts(bare, 7, one);

    graph large = grid(400);
    grinnder_partition_options o = options(8, 0, 0, 2);
    int32_t *part = array(large.n, 4);
    memset(&progress, 0, sizeof progress);
    progress.stop = 1;
    CHECK(grinnder_partition_run(large.n, large.edges, large.ptr, large.idx, &o, part, &progress) == -ECANCELED);
    drop(g), drop(empty), drop(bare), drop(large);
    free(one), free(many), free(part);
    return 0;
}
