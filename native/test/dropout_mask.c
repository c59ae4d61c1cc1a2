/* Every element is kept or dropped by its own word of Philox, whatever the width, the threads or the row's place. */
#include <math.h>

#include "cpu_graph.h"

int main(int argc, char **argv) {
    use_isa(argc, argv);
    const int64_t widths[] = {1, 3, 4, 5, 16, 31, 47, 64, 65, 128, 257};
    const double probabilities[] = {0.5, 0.1, 1.0 / 3, 0.999, 1e-12};
    enum { rows = 40 };
    int64_t ids[rows];
    for (int r = 0; r < rows; ++r) ids[r] = r % 2 ? r : ((int64_t)r << 33) + 5;
    const uint32_t key[2] = {0xdeadbeef, 77};
    for (int k = 0; k < 11; ++k)
        for (int q = 0; q < 5; ++q) {
            const int64_t w = widths[k];
            const double p = probabilities[q];
            const uint32_t threshold = (uint32_t)floor(p * 4294967296.0);
            float *x = array(rows * w, 4);
            double *y = array(rows * w, 8);
            for (int64_t i = 0; i < rows * w; ++i) y[i] = x[i] = (float)(i + 1);
            CHECK(grinnder_cpu_dropout_f32(rows, w, ids, key[0], key[1], p, x, 3) == 0);
            CHECK(grinnder_cpu_dropout_f64(rows, w, ids, key[0], key[1], p, y, 2) == 0);
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < w; ++j) {
                    const uint32_t counter[4] = {(uint32_t)ids[r], (uint32_t)(ids[r] >> 32), (uint32_t)(j / 4), 0};
                    uint32_t word[4];
                    CHECK(grinnder_cpu_philox(counter, key, word) == 0);
                    const int keep = word[j % 4] >= threshold;
                    const float value = (float)(r * w + j + 1);
                    CHECK(x[r * w + j] == (keep ? value * (float)(1 / (1 - p)) : 0));
                    CHECK(y[r * w + j] == (keep ? value * (1 / (1 - p)) : 0));
                }
            free(x), free(y);
        }
    float one = 7;
    CHECK(grinnder_cpu_dropout_f32(1, 1, ids, 0, 0, 0.0, &one, 1) == 0 && one == 7);
    CHECK(grinnder_cpu_dropout_f32(1, 1, ids, 0, 0, 1.0, &one, 1) == -EINVAL);
    CHECK(grinnder_cpu_dropout_f32(1, 1, ids, 0, 0, NAN, &one, 1) == -EINVAL);
    CHECK(grinnder_cpu_dropout_f32(1, 1, NULL, 0, 0, 0.5, &one, 1) == -EINVAL);
    return 0;
}
