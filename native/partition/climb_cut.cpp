// Fiduccia-Mattheyses between all parts, for levels small enough for one thread: it goes on past moves that make the
// cut worse, and takes back what came after the best moment. Greedy refinement ends where no single move helps.
#include <queue>

#include "steps.h"

namespace grinnder {
namespace {

class Climb {
public:
    Climb(const Graph &g, int32_t parts, int64_t cap, Parts part, Loads &load)
        : g_(g), cap_(cap), hub_(std::max<int64_t>(200, g.n ? 3 * g.edges() / g.n : 0)), part_(part), load_(load),
          towards_(parts, 0), moved_in_(g.n, 0) {}

    // What one pass saves.
    int64_t pass(Work &work, uint64_t seed) {
        ++turn_;
        std::priority_queue<Entry> queue;
        for (int32_t v = 0; v < g_.n; ++v) push(queue, v, seed);
        std::vector<Step> steps;
        int64_t saved = 0, best = 0;
        size_t kept = 0, looks = 0;
        const size_t patience = std::max<size_t>(200, static_cast<size_t>(g_.n) / 200);
        while (!queue.empty() && steps.size() - kept < patience) {
            if (++looks % 1024 == 0) work.look();
            const Entry entry = queue.top();
            queue.pop();
            const int32_t v = entry.v;
            if (moved_in_[v] == turn_) continue;
            const Choice now = choose(v);
            if (now.to < 0) continue;
            if (now.gain < entry.gain) {  // neighbours moved meanwhile
                queue.push({now.gain, entry.draw, v});
                continue;
            }
            steps.push_back({v, part_[v]});
            go(v, now.to);
            moved_in_[v] = turn_;
            saved += now.gain;
            if (saved > best) {
                best = saved;
                kept = steps.size();
            }
            for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e)
                if (moved_in_[g_.idx[e]] != turn_) push(queue, g_.idx[e], seed);
        }
        while (steps.size() > kept) {
            go(steps.back().v, steps.back().from);
            steps.pop_back();
        }
        return best;
    }

private:
    struct Entry {
        int64_t gain;
        uint32_t draw;
        int32_t v;
        bool operator<(const Entry &o) const {
            return gain != o.gain ? gain < o.gain : draw != o.draw ? draw < o.draw : v < o.v;
        }
    };
    struct Step {
        int32_t v, from;
    };
    struct Choice {
        int32_t to;
        int64_t gain;
    };

    Choice choose(int32_t v) {
        const int32_t from = part_[v], w = g_.weight(v);
        if (from < 0) return {-1, 0};
        touched_.clear();
        for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
            const int32_t q = part_[g_.idx[e]];
            if (q < 0) continue;
            if (towards_[q] == 0) touched_.push_back(q);
            towards_[q] += g_.along(e);
        }
        Choice best{-1, 0};
        for (int32_t q : touched_) {
            const int64_t gain = towards_[q] - towards_[from];
            if (q == from || load_[q] + w > cap_) continue;
            if (best.to < 0 || gain > best.gain || (gain == best.gain && load_[q] < load_[best.to])) best = {q, gain};
        }
        for (int32_t q : touched_) towards_[q] = 0;
        return best;
    }

    void push(std::priority_queue<Entry> &queue, int32_t v, uint64_t seed) {
        if (g_.degree(v) > hub_) return;
        const Choice choice = choose(v);
        if (choice.to >= 0) queue.push({choice.gain, static_cast<uint32_t>(mixed(v + seed)), v});
    }

    void go(int32_t v, int32_t to) {
        load_[part_[v]] -= g_.weight(v);
        load_[to] += g_.weight(v);
        part_[v] = to;
    }

    const Graph &g_;
    const int64_t cap_;
    const int64_t hub_;  // with more neighbours a node stays: it is looked at whenever one of them moves
    const Parts part_;
    Loads &load_;
    std::vector<int64_t> towards_;
    std::vector<int32_t> touched_;
    Buffer<uint32_t> moved_in_;
    uint32_t turn_ = 0;
};

}  // namespace

void climb_cut(Work &work, const Graph &g, int32_t parts, int64_t cap, int passes, uint64_t seed, Parts part,
               Loads &load) {
    Climb climb(g, parts, cap, part, load);
    for (int pass = 0; pass < passes; ++pass) {
        work.look();
        if (climb.pass(work, seed + pass) == 0) break;
    }
}

}  // namespace grinnder
