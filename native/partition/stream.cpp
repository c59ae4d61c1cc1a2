// One pass over the nodes as they lie, and a second that knows the first: no memory but parts and loads.
#include <cmath>
#include <set>

#include "steps.h"

namespace grinnder {

void stream(Work &work, const Graph &g, int32_t parts, int64_t cap, uint64_t seed, Parts part) {
    std::fill(part, part + g.n, -1);
    Loads load(parts, 0);
    std::vector<int32_t> towards(parts, 0), touched;
    std::set<std::pair<int64_t, int32_t>> by_load;
    for (int32_t p = 0; p < parts; ++p) by_load.insert({0, p});
    auto add = [&](int32_t p, int64_t w) {
        by_load.erase({load[p], p});
        load[p] += w;
        by_load.insert({load[p], p});
    };
    const double scale = 1.5 * std::sqrt(static_cast<double>(parts)) * 0.5 * static_cast<double>(g.edges()) /
                         std::pow(std::max<double>(1, g.n), 1.5);
    // Where it begins is the seed's; ids that carry locality stay in their order.
    const int64_t first = g.n ? static_cast<int64_t>(mixed(seed) % static_cast<uint64_t>(g.n)) : 0;
    for (int pass = 0; pass < 2; ++pass) {
        for (int64_t i = 0; i < g.n; ++i) {
            if (i % 4096 == 0) work.look();
            const int32_t v = static_cast<int32_t>((first + i) % g.n);
            if (g.degree(v) == 0) continue;
            if (part[v] >= 0) add(part[v], -1);
            for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e) {
                const int32_t q = part[g.idx[e]];
                if (q >= 0 && towards[q]++ == 0) touched.push_back(q);
            }
            int32_t best = by_load.begin()->second;
            double most = towards[best] - scale * std::sqrt(static_cast<double>(load[best]));
            for (int32_t q : touched) {
                const double score = towards[q] - scale * std::sqrt(static_cast<double>(load[q]));
                if (load[q] < cap && (score > most || (score == most && q < best))) {
                    best = q;
                    most = score;
                }
            }
            for (int32_t q : touched) towards[q] = 0;
            touched.clear();
            part[v] = best;
            add(best, 1);
        }
        work.round();
    }
}

}  // namespace grinnder
