// Contraction in two passes: the first counts, so that the coarse graph is allocated once and as large as it is.
#include "steps.h"
#include "tally.h"

namespace grinnder {
namespace {

constexpr int64_t STEP = 256;
constexpr int AHEAD = 24;

// Nodes of each cluster, cluster after cluster.
struct Members {
    Buffer<int32_t> begin, node;

    Members(int32_t fine, const int32_t *map, int32_t n) : begin(static_cast<int64_t>(n) + 2, 0) {
        for (int32_t v = 0; v < fine; ++v)
            if (map[v] >= 0) ++begin[map[v] + 2];
        for (int64_t c = 2; c <= n + 1; ++c) begin[c] += begin[c - 1];
        node = Buffer<int32_t>(begin[n + 1]);
        for (int32_t v = 0; v < fine; ++v)
            if (map[v] >= 0) node[begin[map[v] + 1]++] = v;
    }
};

}  // namespace

Level contract(Work &work, const Graph &g, const int32_t *map, int32_t n) {
    const Members members(g.n, map, n);
    Level coarse;
    coarse.n = n;
    coarse.node_weight = Buffer<int32_t>(n);
    coarse.ptr = Buffer<int64_t>(static_cast<int64_t>(n) + 1, 0);
    std::vector<Tally> tallies(work.threads());
    auto tally_cluster = [&](int64_t c, int thread) -> Tally & {
        int64_t degrees = 0, weight = 0;
        for (int64_t j = members.begin[c]; j < members.begin[c + 1]; ++j) {
            degrees += g.degree(members.node[j]);
            weight += g.weight(members.node[j]);
        }
        coarse.node_weight[c] = static_cast<int32_t>(weight);
        Tally &tally = tallies[thread];
        tally.prepare(std::min<int64_t>(degrees, n));
        for (int64_t j = members.begin[c]; j < members.begin[c + 1]; ++j) {
            const int32_t v = members.node[j];
            for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e) {
                __builtin_prefetch(&map[g.later(e, AHEAD)]);
                const int32_t to = map[g.idx[e]];
                if (to != c) tally.add(to, g.along(e));
            }
        }
        return tally;
    };
    work.ranges(n, STEP, [&](int64_t first, int64_t last, int thread) {
        for (int64_t c = first; c < last; ++c) {
            Tally &tally = tally_cluster(c, thread);
            coarse.ptr[c + 1] = tally.size();
            tally.clear();
        }
    });
    for (int64_t c = 0; c < n; ++c) coarse.ptr[c + 1] += coarse.ptr[c];
    coarse.idx = Buffer<int32_t>(coarse.ptr[n]);
    coarse.edge_weight = Buffer<int32_t>(coarse.ptr[n]);
    work.ranges(n, STEP, [&](int64_t first, int64_t last, int thread) {
        for (int64_t c = first; c < last; ++c) {
            Tally &tally = tally_cluster(c, thread);
            const int64_t begin = coarse.ptr[c];
            int64_t end = begin;
            tally.each([&](int32_t to, int32_t) { coarse.idx[end++] = to; });
            std::sort(&coarse.idx[begin], &coarse.idx[end]);
            for (int64_t e = begin; e < end; ++e) coarse.edge_weight[e] = tally.of(coarse.idx[e]);
            tally.clear();
        }
    });
    return coarse;
}

}  // namespace grinnder
