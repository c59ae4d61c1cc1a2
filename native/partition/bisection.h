// One bisection: growing a side, and Fiduccia-Mattheyses passes between the two.
#pragma once
#include <cstdint>
#include <tuple>
#include <vector>

namespace grinnder {

// A small graph with weights.
struct Half {
    std::vector<int64_t> ptr;
    std::vector<int32_t> idx, edge_weight, weight;
    int64_t total = 0;  // of node weights
};

struct Outcome {
    int64_t over = 0;  // weight above what the sides may have
    int64_t cut = 0;
    bool operator<(const Outcome &other) const {
        return std::tie(over, cut) < std::tie(other.over, other.cut);
    }
};

// Side 0 grows to about `want` weight from a node drawn by seed, always by the node that saves most; side is all 1.
void grow_side(const Half &half, int64_t want, uint64_t seed, std::vector<uint8_t> &side);

// Moves nodes between the sides while the cut falls or weight above most[side] does.
Outcome refine_sides(const Half &half, const int64_t most[2], std::vector<uint8_t> &side);

}  // namespace grinnder
