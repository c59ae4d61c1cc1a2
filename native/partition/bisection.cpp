#include "bisection.h"

#include <algorithm>
#include <climits>
#include <queue>

#include "work.h"

namespace grinnder {
namespace {

constexpr int PASSES = 8;
using Queue = std::priority_queue<std::pair<int64_t, int32_t>>;

// One pass: every node moves at most once, and what came after the best moment is taken back.
class Pass {
public:
    Pass(const Half &half, const int64_t most[2], std::vector<uint8_t> &side)
        : half_(half), most_{most[0], most[1]}, side_(side), gain_(side.size(), 0), locked_(side.size(), 0) {
        for (size_t v = 0; v < side.size(); ++v) {
            weight_[side[v]] += half.weight[v];
            for (int64_t e = half.ptr[v]; e < half.ptr[v + 1]; ++e) {
                const bool crosses = side[half.idx[e]] != side[v];
                gain_[v] += crosses ? half.edge_weight[e] : -half.edge_weight[e];
                if (crosses) cut_ += half.edge_weight[e];
            }
        }
        cut_ /= 2;
    }

    Outcome before() const { return {over(), cut_}; }

    Outcome run() {
        const bool tight = over() > 0;  // then nodes without edges are worth moving too
        for (size_t v = 0; v < side_.size(); ++v)
            if (tight || half_.ptr[v + 1] > half_.ptr[v]) queue_[side_[v]].push({gain_[v], static_cast<int32_t>(v)});
        Outcome best = before();
        std::vector<int32_t> moved;
        size_t kept = 0;
        const int patience = std::max<int>(100, static_cast<int>(side_.size() / 20));
        for (int worse = 0; worse < patience;) {
            const int from = choose();
            if (from < 0) break;
            const int32_t v = queue_[from].top().second;
            queue_[from].pop();
            move(v);
            moved.push_back(v);
            const Outcome now = before();
            if (now < best) {
                best = now;
                kept = moved.size();
                worse = 0;
            } else {
                ++worse;
            }
        }
        while (moved.size() > kept) {
            side_[moved.back()] ^= 1;
            moved.pop_back();
        }
        return best;
    }

private:
    int64_t over() const {
        return std::max<int64_t>(0, weight_[0] - most_[0]) + std::max<int64_t>(0, weight_[1] - most_[1]);
    }

    void drop_stale(int from) {
        Queue &queue = queue_[from];
        while (!queue.empty()) {
            const auto [gain, v] = queue.top();
            if (!locked_[v] && side_[v] == from && gain_[v] == gain) return;
            queue.pop();
        }
    }

    // The side to move a node from, its queue's top; -1: nothing can move.
    int choose() {
        for (;;) {
            drop_stale(0);
            drop_stale(1);
            for (int from : {0, 1})
                if (weight_[from] > most_[from] && !queue_[from].empty()) return from;
            int64_t gains[2] = {LLONG_MIN, LLONG_MIN};
            for (int from : {0, 1}) {
                if (queue_[from].empty()) continue;
                const auto [gain, v] = queue_[from].top();
                if (weight_[1 - from] + half_.weight[v] <= most_[1 - from]) gains[from] = gain;
            }
            if (gains[0] != LLONG_MIN || gains[1] != LLONG_MIN) return gains[0] >= gains[1] ? 0 : 1;
            const int blocked = queue_[0].empty() ? 1 : 0;
            if (queue_[blocked].empty()) return -1;
            locked_[queue_[blocked].top().second] = 1;  // no room for it: let others be seen
        }
    }

    void move(int32_t v) {
        const int from = side_[v];
        locked_[v] = 1;
        cut_ -= gain_[v];
        weight_[from] -= half_.weight[v];
        weight_[1 - from] += half_.weight[v];
        side_[v] ^= 1;
        for (int64_t e = half_.ptr[v]; e < half_.ptr[v + 1]; ++e) {
            const int32_t u = half_.idx[e];
            if (locked_[u]) continue;
            gain_[u] += (side_[u] == side_[v] ? -2 : 2) * static_cast<int64_t>(half_.edge_weight[e]);
            queue_[side_[u]].push({gain_[u], u});
        }
    }

    const Half &half_;
    const int64_t most_[2];
    std::vector<uint8_t> &side_;
    std::vector<int64_t> gain_;
    std::vector<uint8_t> locked_;
    Queue queue_[2];
    int64_t weight_[2] = {0, 0};
    int64_t cut_ = 0;
};

}  // namespace

void grow_side(const Half &half, int64_t want, uint64_t seed, std::vector<uint8_t> &side) {
    const uint64_t n = side.size();
    std::vector<int64_t> gain(n, LLONG_MIN);
    std::vector<uint8_t> refused(n, 0);
    Queue queue;
    int64_t grown = 0;
    uint64_t scan = 0, start = mixed(seed) % n;
    int refusals = 0;
    auto next = [&]() -> int32_t {
        while (!queue.empty()) {
            const auto [g, v] = queue.top();
            queue.pop();
            if (side[v] && !refused[v] && gain[v] == g) return v;
        }
        if (scan == 0) start = mixed(seed) % n;
        for (; scan < n; ++scan) {  // another component: the next in a row that begins anywhere
            const uint64_t v = (start + scan) % n;
            if (side[v] && !refused[v]) return static_cast<int32_t>(v);
        }
        return -1;
    };
    while (grown < want) {
        const int32_t v = next();
        if (v < 0) return;
        if (grown + half.weight[v] > want + want / 20 + 1 && grown > want - want / 10) {
            refused[v] = 1;
            if (++refusals > 100) return;
            continue;
        }
        side[v] = 0;
        grown += half.weight[v];
        for (int64_t e = half.ptr[v]; e < half.ptr[v + 1]; ++e) {
            const int32_t u = half.idx[e];
            if (!side[u] || refused[u]) continue;
            if (gain[u] == LLONG_MIN) {
                gain[u] = 0;
                for (int64_t f = half.ptr[u]; f < half.ptr[u + 1]; ++f) gain[u] -= half.edge_weight[f];
            }
            gain[u] += 2 * static_cast<int64_t>(half.edge_weight[e]);
            queue.push({gain[u], u});
        }
    }
}

Outcome refine_sides(const Half &half, const int64_t most[2], std::vector<uint8_t> &side) {
    Outcome reached;
    for (int pass = 0; pass < PASSES; ++pass) {
        Pass fm(half, most, side);
        const Outcome before = fm.before();
        reached = fm.run();
        if (!(reached < before)) break;
    }
    return reached;
}

}  // namespace grinnder
