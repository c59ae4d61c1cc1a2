// Edges in any order -> rows in order: count, scatter, sort each row. Threads own ranges of rows, so that equal edges
// keep their order; each looks at every key, which costs less than handing keys out.
#include <algorithm>
#include <atomic>
#include <new>
#include <utility>
#include <vector>

#include "export.h"
#include "parallel.h"

namespace grinnder {
namespace {

constexpr int64_t short_row = 32;  // insertion sort up to here

template <typename I, typename W>
void sort_row(I *column, W *weight, int64_t length, std::vector<std::pair<I, W>> &scratch) {
    if (length <= short_row) {
        for (int64_t i = 1; i < length; ++i) {
            const I c = column[i];
            const W w = weight ? weight[i] : W();
            int64_t j = i;
            for (; j > 0 && column[j - 1] > c; --j) {
                column[j] = column[j - 1];
                if (weight) weight[j] = weight[j - 1];
            }
            column[j] = c;
            if (weight) weight[j] = w;
        }
    } else if (!weight) {
        std::sort(column, column + length);
    } else {
        scratch.resize(static_cast<size_t>(length));
        for (int64_t i = 0; i < length; ++i) scratch[static_cast<size_t>(i)] = {column[i], weight[i]};
        std::stable_sort(scratch.begin(), scratch.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
        for (int64_t i = 0; i < length; ++i) {
            column[i] = scratch[static_cast<size_t>(i)].first;
            weight[i] = scratch[static_cast<size_t>(i)].second;
        }
    }
}

template <typename I, typename W>
int make_rows(int64_t count, const int64_t *keys, int64_t columns, int64_t first_row, int64_t rows, const W *weight,
              bool unique, int64_t *row_counts, I *indices, W *weight_out, int64_t *kept, int64_t *loops,
              int threads) {
    const int64_t base = first_row * columns, span = rows * columns;
    const int size = team(threads, count);
    std::vector<int64_t> end(static_cast<size_t>(rows), 0);  // counts, then where the next edge of a row goes
    std::atomic<bool> inside{true}, memory{true};
    const auto row_of_share = [&](int t) { return rows / size * t + std::min<int64_t>(t, rows % size); };
    parallel(size, [&](int t) {
        const int64_t low = row_of_share(t) * columns, high = row_of_share(t + 1) * columns;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t key = keys[i] - base;
            if (key >= low && key < high) ++end[static_cast<size_t>(key / columns)];
            else if (key < 0 || key >= span) inside = false;
        }
    });
    if (!inside) return -ERANGE;
    int64_t sum = 0;
    for (int64_t &entry : end) {
        const int64_t here = entry;
        entry = sum;
        sum += here;
    }
    std::vector<int64_t> cut(static_cast<size_t>(size) + 1, rows);  // rows at which threads' equal shares of edges begin
    cut[0] = 0;
    for (int t = 1; t < size; ++t) cut[static_cast<size_t>(t)] = std::lower_bound(end.begin(), end.end(), sum / size * t) - end.begin();
    parallel(size, [&](int t) {
        const int64_t from = cut[static_cast<size_t>(t)], to = cut[static_cast<size_t>(t) + 1];
        const int64_t low = from * columns, high = to * columns;
        int64_t at = from < rows ? end[static_cast<size_t>(from)] : count;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t key = keys[i] - base;
            if (key < low || key >= high) continue;
            const int64_t row = key / columns, place = end[static_cast<size_t>(row)]++;
            indices[place] = static_cast<I>(key - row * columns);
            if (weight) weight_out[place] = weight[i];
        }
        try {
            std::vector<std::pair<I, W>> scratch;
            for (int64_t row = from; row < to; ++row) {
                const int64_t stop = end[static_cast<size_t>(row)];
                sort_row<I, W>(indices + at, weight ? weight_out + at : nullptr, stop - at, scratch);
                at = stop;
            }
        } catch (const std::bad_alloc &) {
            memory = false;
        }
    });
    if (!memory) return -ENOMEM;
    int64_t filled = 0, own = 0, at = 0;
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t stop = end[static_cast<size_t>(row)], before = filled;
        for (; at < stop; ++at) {
            if (unique && at + 1 < stop && indices[at] == indices[at + 1]) continue;
            own += static_cast<int64_t>(indices[at]) == first_row + row;
            if (unique) {
                indices[filled] = indices[at];
                if (weight) weight_out[filled] = weight_out[at];
            }
            ++filled;
        }
        row_counts[row] += filled - before;
    }
    *kept = filled;
    *loops = own;
    return 0;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_prepare_rows(int64_t count, const int64_t *keys, int64_t columns, int64_t first_row,
                                          int64_t rows, int weight_bytes, const void *weight, int unique,
                                          int index_bytes, int64_t *row_counts, void *indices, void *weight_out,
                                          int64_t *kept, int64_t *loops, int threads) {
    using namespace grinnder;
    if (count < 0 || columns < 0 || first_row < 0 || rows < 0 || threads < 1 || !kept || !loops) return -EINVAL;
    if (!is_weight(weight_bytes, weight) || (index_bytes != 4 && index_bytes != 8)) return -EINVAL;
    if (count && (!keys || !indices || (weight && !weight_out))) return -EINVAL;
    if (rows && !row_counts) return -EINVAL;
    if (index_bytes == 4 && columns > (int64_t{1} << 31)) return -EINVAL;
    if (count && (!rows || !columns)) return -ERANGE;
    *kept = *loops = 0;
    if (!count) return 0;
    const auto run = [&](auto index, auto value) {
        using I = decltype(index);
        using W = decltype(value);
        return make_rows<I, W>(count, keys, columns, first_row, rows, static_cast<const W *>(weight), unique != 0,
                               row_counts, static_cast<I *>(indices), static_cast<W *>(weight_out), kept, loops,
                               threads);
    };
    const auto typed = [&](auto index) {
        if (weight_bytes == 2) return run(index, uint16_t{});
        if (weight_bytes == 8) return run(index, uint64_t{});
        return run(index, uint32_t{});
    };
    try {
        return index_bytes == 4 ? typed(int32_t{}) : typed(int64_t{});
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}
