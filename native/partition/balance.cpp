// Loads, and the two ways to mend them.
#include <queue>

#include "steps.h"

namespace grinnder {
namespace {

// Parts by load, lightest first, lowest number first among equals; entries that are out of date are dropped on sight.
class Lightest {
public:
    explicit Lightest(const Loads &load) : load_(load) {
        for (size_t p = 0; p < load.size(); ++p) note(static_cast<int32_t>(p));
    }
    void note(int32_t part) { queue_.push({-load_[part], -part}); }
    int32_t top() {
        while (-queue_.top().first != load_[-queue_.top().second]) queue_.pop();
        return -queue_.top().second;
    }

private:
    const Loads &load_;
    std::priority_queue<std::pair<int64_t, int32_t>> queue_;
};

}  // namespace

Loads loads(const Graph &g, int32_t parts, const int32_t *part) {
    Loads load(parts, 0);
    for (int32_t v = 0; v < g.n; ++v)
        if (part[v] >= 0) load[part[v]] += g.weight(v);
    return load;
}

void place_rest(const Graph &g, int32_t parts, Parts part) {
    Loads load = loads(g, parts, part);
    Lightest lightest(load);
    for (int32_t v = 0; v < g.n; ++v) {
        if (part[v] >= 0) continue;
        part[v] = lightest.top();
        load[part[v]] += g.weight(v);
        lightest.note(part[v]);
    }
}

void enforce_cap(Work &work, const Graph &g, int32_t parts, int64_t cap, uint64_t seed, Parts part) {
    Loads load = loads(g, parts, part);
    if (*std::max_element(load.begin(), load.end()) <= cap) return;
    // First what has the fewest edges: it costs the least.
    std::vector<int32_t> nodes;
    for (int32_t v = 0; v < g.n; ++v)
        if (load[part[v]] > cap) nodes.push_back(v);
    std::sort(nodes.begin(), nodes.end(), [&](int32_t a, int32_t b) {
        const int64_t da = g.degree(a), db = g.degree(b);
        if (da != db) return da < db;
        const uint64_t ha = mixed(a + seed), hb = mixed(b + seed);
        return ha != hb ? ha < hb : a < b;
    });
    Lightest lightest(load);
    std::vector<int64_t> towards(parts, 0);
    int64_t steps = 0;
    for (int32_t v : nodes) {
        if (++steps % 4096 == 0) work.look();
        const int32_t from = part[v];
        if (load[from] <= cap) continue;
        int32_t best = lightest.top();
        int64_t most = 0;
        for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e) {
            const int32_t q = part[g.idx[e]];
            towards[q] += g.along(e);
            if (q != from && load[q] + g.weight(v) <= cap && towards[q] > most) {
                most = towards[q];
                best = q;
            }
        }
        for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e) towards[part[g.idx[e]]] = 0;
        load[from] -= g.weight(v);
        load[best] += g.weight(v);
        part[v] = best;
        lightest.note(from);
        lightest.note(best);
    }
}

}  // namespace grinnder
