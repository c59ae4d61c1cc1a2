// Greedy moves towards a smaller cut: proposed side by side, made one by one, the best first.
#include "steps.h"

namespace grinnder {
namespace {

constexpr int AHEAD = 24;

struct Move {
    int32_t v, to, gain;
};

struct Scratch {
    std::vector<int64_t> towards;
    std::vector<int32_t> touched;
};

class CutRefinement {
public:
    CutRefinement(Work &work, const Graph &g, int32_t parts, int64_t cap, Parts part, Loads &load)
        : work_(work), g_(g), cap_(cap), part_(part), load_(load), active_(g.n, 1), scratch_(work.threads()) {
        for (auto &s : scratch_) s.towards.assign(parts, 0);
    }

    int64_t round(uint64_t salt) {
        std::vector<Move> moves;
        int64_t moved = 0;
        for (int turn = 0; turn < SUBROUNDS; ++turn) {
            propose_some(work_, g_.n, turn, salt, moves, [&](int32_t v, std::vector<Move> &list, int thread) {
                if (!active_[v] || part_[v] < 0) return;
                active_[v] = 0;
                propose(v, list, scratch_[thread]);
            });
            std::sort(moves.begin(), moves.end(),
                      [](const Move &a, const Move &b) { return a.gain != b.gain ? a.gain > b.gain : a.v < b.v; });
            for (const Move &move : moves) moved += commit(move);
        }
        return moved;
    }

private:
    void propose(int32_t v, std::vector<Move> &list, Scratch &s) {
        const int32_t from = part_[v];
        bool border = false;
        for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
            __builtin_prefetch(&part_[g_.later(e, AHEAD)]);
            const int32_t q = part_[g_.idx[e]];
            if (q < 0) continue;
            border |= q != from;
            if (!s.towards[q]) s.touched.push_back(q);
            s.towards[q] += g_.along(e);
        }
        if (border) {
            const bool over = load_[from] > cap_;
            const int32_t w = g_.weight(v);
            int32_t best = from;
            int64_t most = 0;
            for (int32_t q : s.touched) {
                if (q == from || load_[q] + w > cap_) continue;
                const int64_t gain = s.towards[q] - s.towards[from];
                const bool better = gain > most || (best == from && over) ||
                                    (gain == most && best != from && load_[q] < load_[best]);
                if (better) {
                    best = q;
                    most = gain;
                }
            }
            most = std::clamp<int64_t>(most, -INT32_MAX, INT32_MAX);
            if (best != from) list.push_back({v, best, static_cast<int32_t>(most)});
        }
        for (int32_t q : s.touched) s.towards[q] = 0;
        s.touched.clear();
    }

    int64_t commit(const Move &move) {
        const int32_t w = g_.weight(move.v), from = part_[move.v];
        if (load_[move.to] + w > cap_ || (move.gain < 0 && load_[from] <= cap_)) return 0;
        load_[from] -= w;
        load_[move.to] += w;
        part_[move.v] = move.to;
        for (int64_t e = g_.ptr[move.v]; e < g_.ptr[move.v + 1]; ++e) active_[g_.idx[e]] = 1;
        return 1;
    }

    Work &work_;
    const Graph &g_;
    const int64_t cap_;
    const Parts part_;
    Loads &load_;
    Buffer<uint8_t> active_;
    std::vector<Scratch> scratch_;
};

}  // namespace

void refine_cut(Work &work, const Graph &g, int32_t parts, int64_t cap, int rounds, uint64_t seed, Parts part,
                Loads &load) {
    CutRefinement refinement(work, g, parts, cap, part, load);
    for (int round = 0; round < rounds; ++round) {
        const int64_t moved = refinement.round(seed + round * 104729);
        work.round();
        if (moved <= g.n / 1000) break;
    }
}

}  // namespace grinnder
