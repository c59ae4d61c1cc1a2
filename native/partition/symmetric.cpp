// Checks what comes in, and makes edges symmetric and single where they are not.
#include <atomic>

#include "check.h"
#include "steps.h"

namespace grinnder {
namespace {

constexpr int64_t ROWS = 1024;

// Rows ascend strictly, no loops, and two order-free sums over edges equal those over the edges turned round.
bool is_simple(Work &work, int32_t n, const int64_t *ptr, const int32_t *idx) {
    std::atomic<bool> simple{true};
    std::atomic<uint64_t> balance{0}, other{0};
    work.ranges(n, ROWS, [&](int64_t first, int64_t last, int) {
        uint64_t sums[2] = {0, 0};
        for (int64_t v = first; v < last && simple.load(std::memory_order_relaxed); ++v) {
            const uint64_t mine[2] = {mixed(v), mixed(v + 0xd1b54a32d192ed03u)};
            for (int64_t e = ptr[v]; e < ptr[v + 1]; ++e) {
                const uint64_t u = static_cast<uint64_t>(idx[e]);
                if (idx[e] == v || (e > ptr[v] && idx[e] <= idx[e - 1])) simple = false;
                sums[0] += mixed(mine[0] + u) - mixed(mixed(u) + v);
                sums[1] += mixed(mine[1] + u) - mixed(mixed(u + 0xd1b54a32d192ed03u) + v);
            }
        }
        balance += sums[0];
        other += sums[1];
    });
    return simple && balance == 0 && other == 0;
}

// Sorts the rows and closes the gaps that duplicates leave.
void make_single(Work &work, Level &copy) {
    Buffer<int64_t> &ptr = copy.ptr;
    int32_t *idx = copy.idx.data();
    Buffer<int32_t> length(copy.n);
    work.ranges(copy.n, ROWS, [&](int64_t first, int64_t last, int) {
        for (int64_t v = first; v < last; ++v) {
            std::sort(idx + ptr[v], idx + ptr[v + 1]);
            length[v] = static_cast<int32_t>(std::unique(idx + ptr[v], idx + ptr[v + 1]) - (idx + ptr[v]));
        }
    });
    int64_t end = 0;
    for (int32_t v = 0; v < copy.n; ++v) {
        const int64_t begin = ptr[v];
        std::copy(idx + begin, idx + begin + length[v], idx + end);
        ptr[v] = end;
        end += length[v];
    }
    ptr[copy.n] = end;
    copy.idx.shrink(end);
}

}  // namespace

Graph symmetric(Work &work, int32_t n, const int64_t *ptr, const int32_t *idx, Level &copy) {
    if (is_simple(work, n, ptr, idx)) return {n, ptr, idx, nullptr, nullptr};
    copy.n = n;
    // Row v is counted at v + 2 and filled through v + 1, which ends as the row's end: no second array of offsets.
    copy.ptr = Buffer<int64_t>(static_cast<int64_t>(n) + 2, 0);
    int64_t *at = copy.ptr.data();
    auto each = [&](auto see) {
        work.ranges(n, ROWS, [&](int64_t first, int64_t last, int) {
            for (int64_t v = first; v < last; ++v)
                for (int64_t e = ptr[v]; e < ptr[v + 1]; ++e)
                    if (idx[e] != v) see(static_cast<int32_t>(v), idx[e]);
        });
    };
    each([&](int32_t v, int32_t u) {
        __atomic_fetch_add(&at[v + 2], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&at[u + 2], 1, __ATOMIC_RELAXED);
    });
    for (int64_t v = 2; v <= n + 1; ++v) at[v] += at[v - 1];
    copy.idx = Buffer<int32_t>(at[n + 1]);
    each([&](int32_t v, int32_t u) {
        copy.idx[__atomic_fetch_add(&at[v + 1], 1, __ATOMIC_RELAXED)] = u;
        copy.idx[__atomic_fetch_add(&at[u + 1], 1, __ATOMIC_RELAXED)] = v;
    });
    make_single(work, copy);  // sorting takes back the order in which threads came
    return copy.view();
}

int check_graph(Work &work, int64_t n, int64_t edges, const int64_t *ptr, const int32_t *idx) {
    if (ptr[0] != 0 || ptr[n] != edges) return -ERANGE;
    std::atomic<bool> good{true};
    work.ranges(n, ROWS, [&](int64_t first, int64_t last, int) {
        for (int64_t v = first; v < last; ++v) {
            if (ptr[v] < 0 || ptr[v + 1] < ptr[v] || ptr[v + 1] > edges) {
                good = false;
                return;
            }
            for (int64_t e = ptr[v]; e < ptr[v + 1]; ++e)
                if (idx[e] < 0 || idx[e] >= n) good = false;
        }
    });
    return good ? 0 : -ERANGE;
}

}  // namespace grinnder
