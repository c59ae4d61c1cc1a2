// A part's columns: own rows, then the distinct others. A bit per node and a running count per 64 of them give each
// column's place without a sort.
#include <new>
#include <vector>

#include "export.h"

GRINNDER_EXPORT int grinnder_prepare_localize(int64_t count, int64_t *keys, int64_t nodes, int64_t first, int64_t last,
                                              int64_t halo_rows, int64_t *halo) {
    if (count < 0 || nodes < 1 || first < 0 || last < first || last > nodes || halo_rows < 0) return -EINVAL;
    if ((count && !keys) || (halo_rows && !halo)) return -EINVAL;
    try {
        const size_t words = static_cast<size_t>((nodes + 63) / 64);
        std::vector<uint64_t> bits(words, 0);
        for (int64_t i = 0; i < count; ++i) {
            if (keys[i] < 0) return -ERANGE;
            const int64_t column = keys[i] % nodes;
            if (column < first || column >= last) bits[static_cast<size_t>(column / 64)] |= uint64_t{1} << (column % 64);
        }
        std::vector<uint32_t> before(words);
        int64_t found = 0;
        for (size_t word = 0; word < words; ++word) {
            before[word] = static_cast<uint32_t>(found);
            for (uint64_t rest = bits[word]; rest; rest &= rest - 1, ++found) {
                if (found == halo_rows) return -ERANGE;
                halo[found] = static_cast<int64_t>(word) * 64 + __builtin_ctzll(rest);
            }
        }
        if (found != halo_rows) return -ERANGE;
        const int64_t own = last - first, width = own + halo_rows;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t row = keys[i] / nodes, column = keys[i] - row * nodes;
            int64_t local = column - first;
            if (column < first || column >= last) {
                const size_t word = static_cast<size_t>(column / 64);
                const uint64_t below = bits[word] & ((uint64_t{1} << (column % 64)) - 1);
                local = own + before[word] + __builtin_popcountll(below);
            }
            keys[i] = row * width + local;
        }
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
    return 0;
}
