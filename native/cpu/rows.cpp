// Row-wise kernels: gather and dropout. Rows cost the same, so threads take equal contiguous shares.
#include <errno.h>

#include <atomic>

#include "call.h"
#include "export.h"

namespace grinnder {
namespace {

constexpr int64_t prefetch_rows = 8;
constexpr int64_t dropout_block_rows = 64;  // a multiple of the rows that kernels take together

template <typename T, typename Run>
int dropout(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed, uint32_t stream, double p, T *x,
            int threads, Run run) {
    if (rows < 0 || width < 0 || threads < 1 || !(p >= 0.0 && p < 1.0)) return -EINVAL;
    if (rows == 0 || width == 0 || p == 0.0) return 0;
    if (!ids || !x) return -EINVAL;
    const Mask mask = make_mask(ids, seed, stream, p);
    const int64_t blocks = (rows + dropout_block_rows - 1) / dropout_block_rows;
    const int size = team(threads, rows, static_cast<uint64_t>(width) * sizeof(T));
    (void)size;
#pragma omp parallel for schedule(static) num_threads(size)
    for (int64_t b = 0; b < blocks; ++b)
        run(mask, x, width, b * dropout_block_rows, std::min(rows, (b + 1) * dropout_block_rows));
    return 0;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cpu_gather_rows(int64_t rows, int64_t x_rows, uint64_t row_bytes, const int32_t *index,
                                             const void *x, void *out, int threads) {
    using namespace grinnder;
    if (rows < 0 || x_rows < 0 || threads < 1) return -EINVAL;
    if (rows == 0 || row_bytes == 0) return 0;
    if (!index || !out || (x_rows > 0 && !x)) return -EINVAL;
    const char *from = static_cast<const char *>(x);
    char *to = static_cast<char *>(out);
    const auto copy = kernels().copy_row;
    std::atomic<bool> ok{true};
    const int size = team(threads, rows, row_bytes);
    (void)size;
#pragma omp parallel for schedule(static) num_threads(size)
    for (int64_t r = 0; r < rows; ++r) {
        if (r + prefetch_rows < rows) {
            const char *ahead = from + static_cast<int64_t>(index[r + prefetch_rows]) * static_cast<int64_t>(row_bytes);
            for (uint64_t line = 0; line < row_bytes && line < 1024; line += 64) __builtin_prefetch(ahead + line);
        }
        const int64_t source = index[r];
        if (source < 0 || source >= x_rows) ok.store(false, std::memory_order_relaxed);
        else copy(to + static_cast<uint64_t>(r) * row_bytes, from + static_cast<uint64_t>(source) * row_bytes, row_bytes);
    }
    return ok ? 0 : -ERANGE;
}

GRINNDER_EXPORT int grinnder_cpu_dropout_f32(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed,
                                             uint32_t stream, double p, float *x, int threads) {
    return grinnder::dropout(rows, width, ids, seed, stream, p, x, threads, grinnder::kernels().dropout_f32);
}

GRINNDER_EXPORT int grinnder_cpu_dropout_f64(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed,
                                             uint32_t stream, double p, double *x, int threads) {
    return grinnder::dropout(rows, width, ids, seed, stream, p, x, threads, grinnder::kernels().dropout_f64);
}

GRINNDER_EXPORT int grinnder_cpu_philox(const uint32_t *counter, const uint32_t *key, uint32_t *out) {
    if (!counter || !key || !out) return -EINVAL;
    grinnder::philox(counter, key, out);
    return 0;
}
