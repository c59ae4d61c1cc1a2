// Edges to the buckets they belong to: a stable counting sort of one batch.
#include <string.h>

#include <algorithm>
#include <new>
#include <vector>

#include "export.h"
#include "parallel.h"

namespace grinnder {
namespace {

template <typename W>
void move(int64_t count, const int32_t *group, const int64_t *keys, const void *weight, std::vector<int64_t> &next,
          int64_t *keys_out, void *weight_out) {
    const W *from = static_cast<const W *>(weight);
    W *to = static_cast<W *>(weight_out);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = next[static_cast<size_t>(group[i])]++;
        keys_out[at] = keys[i];
        if (from) to[at] = from[i];
    }
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_prepare_version(void) { return 1; }

GRINNDER_EXPORT int grinnder_prepare_group(int64_t count, int64_t groups, const int32_t *group, const int64_t *keys,
                                           int weight_bytes, const void *weight, int64_t *offsets, int64_t *keys_out,
                                           void *weight_out) {
    using namespace grinnder;
    if (count < 0 || groups < 1 || !offsets || !is_weight(weight_bytes, weight)) return -EINVAL;
    if (count && (!group || !keys || !keys_out || (weight && !weight_out))) return -EINVAL;
    std::fill(offsets, offsets + groups + 1, 0);
    for (int64_t i = 0; i < count; ++i) {
        if (group[i] < 0 || group[i] >= groups) return -ERANGE;
        ++offsets[group[i] + 1];
    }
    for (int64_t g = 0; g < groups; ++g) offsets[g + 1] += offsets[g];
    try {
        std::vector<int64_t> next(offsets, offsets + groups);
        if (weight_bytes == 2) move<uint16_t>(count, group, keys, weight, next, keys_out, weight_out);
        else if (weight_bytes == 8) move<uint64_t>(count, group, keys, weight, next, keys_out, weight_out);
        else move<uint32_t>(count, group, keys, weight, next, keys_out, weight_out);
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
    return 0;
}
