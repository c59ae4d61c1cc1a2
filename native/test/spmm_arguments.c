/* Arguments that cannot be are refused, empty ones are fine, and nothing outside the arrays is read. */
#include "cpu_graph.h"

int main(void) {
    int64_t indptr[] = {0, 2, 3, 3};
    int32_t indices[] = {0, 1, 2};
    float x[6] = {1, 2, 3, 4, 5, 6}, out[6];
#define SPMM(rows, edges, x_rows, width, ip, ix, xx, threads) \
    grinnder_cpu_spmm_f32(rows, edges, x_rows, 0, width, ip, ix, NULL, NULL, xx, NULL, out, threads)
    CHECK(SPMM(3, 3, 3, 2, indptr, indices, x, 1) == 0);
    CHECK(out[0] == 4 && out[1] == 6 && out[2] == 5 && out[3] == 6 && out[4] == 0 && out[5] == 0);
    CHECK(SPMM(0, 0, 0, 2, indptr, NULL, NULL, 1) == 0);
    CHECK(SPMM(3, 3, 3, 0, indptr, indices, x, 1) == 0);
    CHECK(SPMM(-1, 3, 3, 2, indptr, indices, x, 1) == -EINVAL);
    CHECK(SPMM(3, 3, 3, 2, NULL, indices, x, 1) == -EINVAL);
    CHECK(SPMM(3, 3, 3, 2, indptr, NULL, x, 1) == -EINVAL);
    CHECK(SPMM(3, 3, 3, 2, indptr, indices, x, 0) == -EINVAL);
    CHECK(SPMM(3, 2, 3, 2, indptr, indices, x, 1) == -ERANGE); /* indptr ends behind the edges */
    CHECK(SPMM(3, 3, 2, 2, indptr, indices, x, 1) == -ERANGE); /* index 2 of 2 rows */
    indices[1] = -1;
    CHECK(SPMM(3, 3, 3, 2, indptr, indices, x, 1) == -ERANGE);
    indices[1] = 1;
    int64_t falling[] = {0, 3, 1, 3};
    CHECK(SPMM(3, 3, 3, 2, falling, indices, x, 1) == -ERANGE);
    int64_t overshooting[] = {0, 1000000000000, 3, 3};
    CHECK(SPMM(3, 3, 3, 2, overshooting, indices, x, 2) == -ERANGE);
    int64_t empty[] = {0, 0, 0, 0};
    CHECK(SPMM(3, 0, 0, 2, empty, NULL, NULL, 1) == 0);
    for (int i = 0; i < 6; ++i) CHECK(out[i] == 0);
    CHECK(grinnder_cpu_set_isa("mmx") == -ENOTSUP);
    return 0;
}
