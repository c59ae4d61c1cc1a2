// Size-constrained label propagation, then merging of lone nodes that like the same cluster (two hops apart).
#include <memory>

#include "steps.h"
#include "tally.h"

namespace grinnder {
namespace {

constexpr int ROUNDS = 5;
constexpr int AHEAD = 24;  // edges between asking for a label and needing it
constexpr int64_t HUB = 1 << 18;
// A node with so many neighbours keeps its label (others still join it): its table would be larger than the labels.

struct Join {
    int32_t v, to;
};

class Clustering {
public:
    Clustering(Work &work, const Graph &g, int64_t most, uint64_t seed)
        : work_(work), g_(g), most_(most), seed_(seed), label_(g.n), weight_(g.n), tallies_(work.threads()) {
        for (int32_t v = 0; v < g.n; ++v) {
            label_[v] = v;
            weight_[v] = g.weight(v);
        }
    }

    Buffer<int32_t> run() {
        Buffer<uint8_t> active(g_.n, 1);
        for (int round = 0; round < ROUNDS; ++round) {
            const int64_t moved = pass(round, active);
            if (moved < g_.n / 100) break;
            if (round == 0) std::fill(active.begin(), active.end(), uint8_t{1});
        }
        active.free();
        merge_lone();
        return std::move(label_);
    }

private:
    Tally &count_neighbours(int32_t v, int thread) {
        Tally &tally = tallies_[thread];
        tally.prepare(g_.degree(v));
        for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
            __builtin_prefetch(&label_[g_.later(e, AHEAD)]);
            tally.add(label_[g_.idx[e]], g_.along(e));
        }
        return tally;
    }

    // The label with the most weight towards v that has room; v's own wins a tie.
    int32_t best_label(int32_t v, int thread) {
        Tally &tally = count_neighbours(v, thread);
        const int32_t own = label_[v], w = g_.weight(v);
        int32_t best = own, most = 0;
        uint64_t draw = 0;
        tally.each([&](int32_t c, int32_t x) {
            if (x < most || (c != own && static_cast<int64_t>(weight_[c]) + w > most_)) return;
            const uint64_t h = c == own ? ~uint64_t{0} : mixed(c * uint64_t{1000003} + v + seed_) >> 1;
            if (x > most || (h > draw && best != own)) {
                best = c;
                most = x;
                draw = h;
            }
        });
        tally.clear();
        return best;
    }

    int64_t pass(int round, Buffer<uint8_t> &active) {
        std::vector<Join> joins;
        int64_t moved = 0;
        for (int turn = 0; turn < SUBROUNDS; ++turn) {
            propose_some(work_, g_.n, turn, seed_ + round * 7919, joins,
                         [&](int32_t v, std::vector<Join> &list, int thread) {
                             if (!active[v]) return;
                             active[v] = 0;
                             if (g_.degree(v) == 0 || g_.degree(v) > HUB) return;
                             const int32_t best = best_label(v, thread);
                             if (best != label_[v]) list.push_back({v, best});
                         });
            const size_t kept = commit(joins);
            moved += kept;
            if (round == 0 && turn < SUBROUNDS / 2) continue;  // all will be looked at again anyway
            work_.ranges(kept, 1024, [&](int64_t first, int64_t last, int) {
                for (int64_t i = first; i < last; ++i)
                    for (int64_t e = g_.ptr[joins[i].v]; e < g_.ptr[joins[i].v + 1]; ++e)
                        __atomic_store_n(&active[g_.idx[e]], 1, __ATOMIC_RELAXED);
            });
        }
        return moved;
    }

    // In node order, as long as there is room; those that moved come to the front.
    size_t commit(std::vector<Join> &joins) {
        size_t kept = 0;
        for (size_t i = 0; i < joins.size(); ++i) {
            if (i + 16 < joins.size()) {
                __builtin_prefetch(&weight_[joins[i + 16].to]);
                __builtin_prefetch(&weight_[label_[joins[i + 16].v]]);
            }
            if (take(joins[i].v, joins[i].to)) joins[kept++] = joins[i];
        }
        return kept;
    }

    bool take(int32_t v, int32_t to) {
        const int32_t w = g_.weight(v);
        if (static_cast<int64_t>(weight_[to]) + w > most_) return false;
        weight_[label_[v]] -= w;
        weight_[to] += w;
        label_[v] = to;
        return true;
    }

    bool lone(int32_t v) const { return weight_[label_[v]] == g_.weight(v); }

    // Leaves of a star, and components that are one node by now, would stay single for ever.
    void merge_lone() {
        std::vector<Join> likes;
        const int32_t none = g_.n;
        const bool coarse = g_.node_weight != nullptr;  // nodes of the graph itself without edges wait to the end
        propose_all(work_, g_.n, likes, [&](int32_t v, std::vector<Join> &list, int thread) {
            if (!lone(v) || g_.degree(v) > HUB) return;
            if (g_.degree(v) == 0) {
                if (coarse) list.push_back({v, none});
                return;
            }
            Tally &tally = count_neighbours(v, thread);
            int32_t best = -1, most = -1;
            uint64_t draw = 0;
            tally.each([&](int32_t c, int32_t x) {
                const uint64_t h = mixed(c * uint64_t{1000003} + seed_);
                if (x > most || (x == most && h > draw)) {
                    best = c;
                    most = x;
                    draw = h;
                }
            });
            tally.clear();
            if (best >= 0 && best != label_[v]) list.push_back({v, best});
        });
        if (likes.empty()) return;
        Buffer<int32_t> leader(static_cast<int64_t>(g_.n) + 1, -1);
        for (const Join &join : likes) {
            if (!lone(join.v)) continue;
            const int32_t lead = leader[join.to];
            if (lead < 0 || label_[lead] != lead || !take(join.v, lead)) leader[join.to] = label_[join.v];
        }
    }

    Work &work_;
    const Graph &g_;
    const int64_t most_;
    const uint64_t seed_;
    Buffer<int32_t> label_, weight_;
    std::vector<Tally> tallies_;
};

}  // namespace

Buffer<int32_t> cluster(Work &work, const Graph &g, int64_t most, uint64_t seed) {
    return Clustering(work, g, most, seed).run();
}

int32_t number_clusters(const Graph &g, bool finest, Buffer<int32_t> &labels) {
    Buffer<int32_t> number(g.n, -1);
    int32_t count = 0;
    for (int32_t v = 0; v < g.n; ++v) {
        if (finest && g.degree(v) == 0) {
            labels[v] = -1;
            continue;
        }
        int32_t &mine = number[labels[v]];
        if (mine < 0) mine = count++;
        labels[v] = mine;
    }
    return count;
}

}  // namespace grinnder
