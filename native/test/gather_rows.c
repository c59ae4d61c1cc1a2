/* Rows of any size are copied whole, and not a byte beside them. */
#include "cpu_graph.h"

int main(int argc, char **argv) {
    use_isa(argc, argv);
    enum { x_rows = 300, rows = 1000 };
    int32_t index[rows];
    for (int i = 0; i < rows; ++i) index[i] = (int32_t)random_below(x_rows);
    for (uint64_t bytes = 1; bytes < 300; bytes += bytes < 70 ? 1 : 37) {
        unsigned char *x = array((int64_t)(x_rows * bytes), 1), *out = array((int64_t)(rows * bytes + 1), 1);
        for (uint64_t i = 0; i < x_rows * bytes; ++i) x[i] = (unsigned char)random_bits();
        out[rows * bytes] = 0xa5;
        CHECK(grinnder_cpu_gather_rows(rows, x_rows, bytes, index, x, out, 3) == 0);
        for (int i = 0; i < rows; ++i) CHECK(memcmp(out + i * bytes, x + index[i] * bytes, bytes) == 0);
        CHECK(out[rows * bytes] == 0xa5);
        index[17] = x_rows;
        CHECK(grinnder_cpu_gather_rows(rows, x_rows, bytes, index, x, out, 2) == -ERANGE);
        index[17] = -1;
        CHECK(grinnder_cpu_gather_rows(rows, x_rows, bytes, index, x, out, 2) == -ERANGE);
        index[17] = 0;
        free(x), free(out);
    }
    CHECK(grinnder_cpu_gather_rows(0, 0, 8, NULL, NULL, NULL, 1) == 0);
    CHECK(grinnder_cpu_gather_rows(1, 1, 8, NULL, NULL, NULL, 1) == -EINVAL);
    return 0;
}
