// Parts of a coarsest graph: bisected again and again, each time the best of several grown and refined halves.
#include <climits>
#include <cmath>
#include <queue>

#include "bisection.h"
#include "steps.h"

namespace grinnder {
namespace {

constexpr int TRIES = 8;

class Bisector {
public:
    Bisector(Work &work, const Graph &g, int64_t cap, uint64_t seed, Parts part)
        : work_(work), g_(g), cap_(cap), seed_(seed), part_(part), place_(g.n, -1) {}

    // Depth is log2(parts); what is not needed below is freed first.
    void split(std::vector<int32_t> nodes, int32_t base, int32_t parts) {
        if (parts == 1 || nodes.empty()) {
            for (int32_t v : nodes) part_[v] = base;
            return;
        }
        const int32_t left = parts / 2;
        std::vector<int32_t> a, b;
        {
            const Half half = induce(nodes);
            const std::vector<uint8_t> side = best_side(half, left, parts);
            for (size_t i = 0; i < nodes.size(); ++i) (side[i] ? b : a).push_back(nodes[i]);
        }
        std::vector<int32_t>().swap(nodes);
        split(std::move(a), base, left);
        split(std::move(b), base + left, parts - left);
    }

private:
    Half induce(const std::vector<int32_t> &nodes) {
        Half half;
        for (size_t i = 0; i < nodes.size(); ++i) place_[nodes[i]] = static_cast<int32_t>(i);
        half.ptr.push_back(0);
        for (int32_t v : nodes) {
            for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
                if (place_[g_.idx[e]] < 0) continue;
                half.idx.push_back(place_[g_.idx[e]]);
                half.edge_weight.push_back(g_.along(e));
            }
            half.ptr.push_back(static_cast<int64_t>(half.idx.size()));
            half.weight.push_back(g_.weight(v));
            half.total += g_.weight(v);
        }
        for (int32_t v : nodes) place_[v] = -1;
        return half;
    }

    // Sides (0, 1) whose weights stand as left : parts - left, each allowed its share of the imbalance that is left.
    std::vector<uint8_t> best_side(const Half &half, int32_t left, int32_t parts) {
        const int64_t want = half.total * left / parts;
        const double depth = std::ceil(std::log2(static_cast<double>(parts)));
        const double spare = static_cast<double>(cap_) * parts / static_cast<double>(std::max<int64_t>(1, half.total));
        const double each = std::pow(std::max(1.0, spare), 1.0 / depth);
        const int64_t most[2] = {std::max(want, static_cast<int64_t>(want * each)),
                                 std::max(half.total - want, static_cast<int64_t>((half.total - want) * each))};
        std::vector<std::vector<uint8_t>> sides(TRIES);
        std::vector<Outcome> outcomes(TRIES);
        auto attempt = [&](int64_t t, int) {
            sides[t].assign(half.weight.size(), 1);
            grow_side(half, want, mixed(seed_ + half.total * uint64_t{31} + parts * uint64_t{131} + t), sides[t]);
            outcomes[t] = refine_sides(half, most, sides[t]);
        };
        if (half.weight.size() > 1000) {
            work_.chunks(TRIES, attempt);
        } else {
            work_.look();
            for (int t = 0; t < TRIES; ++t) attempt(t, 0);
        }
        int best = 0;
        for (int t = 1; t < TRIES; ++t)
            if (outcomes[t] < outcomes[best]) best = t;
        return std::move(sides[best]);
    }

    Work &work_;
    const Graph &g_;
    const int64_t cap_;
    const uint64_t seed_;
    const Parts part_;
    Buffer<int32_t> place_;
};

}  // namespace

void bisect(Work &work, const Graph &g, int32_t parts, int64_t cap, uint64_t seed, bool skip_isolated, Parts part) {
    std::vector<int32_t> nodes;
    for (int32_t v = 0; v < g.n; ++v) {
        if (skip_isolated && g.degree(v) == 0)
            part[v] = -1;
        else
            nodes.push_back(v);
    }
    Bisector(work, g, cap, seed, part).split(std::move(nodes), 0, parts);
}

}  // namespace grinnder
