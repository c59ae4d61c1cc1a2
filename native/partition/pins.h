// The pin-count table: for each node u the parts of its closed neighbourhood (u's net) and how many of its nodes lie
// in each. A part owns or reads u exactly where its count in u's net is not 0, so the sum of the nets' lengths is
// alpha * N, and a part's number of nets is its own + halo rows.
#pragma once
#include "steps.h"

namespace grinnder {

// A net of fewer nodes than parts is a list of words part << 20 | count (both at most 4096). Any other is dense: a bit
// for each part that is in it, then a count for each part, found in one step however many parts there are.
class Pins {
public:
    Pins(Work &work, const Graph &g, int32_t parts, const int32_t *part);

    int64_t sum() const { return sum_; }
    const std::vector<int64_t> &extent() const { return extent_; }  // own + halo rows of each part
    int length(int32_t u) const { return state_[u] & LENGTH; }
    // Every part has two nodes or more in it: no single move changes its length.
    bool saturated(int32_t u) const { return state_[u] & SATURATED; }
    bool dense(int32_t u) const { return state_[u] & DENSE; }
    // The net's words: bits() of them and a count for each part where dense, else `length`.
    const uint32_t *net(int32_t u) const { return &words_[at(u)]; }
    int bits() const { return bits_; }
    void prefetch_state(int32_t u) const {
        __builtin_prefetch(&offset_[u]);
        __builtin_prefetch(&state_[u]);
    }
    void prefetch_net(int32_t u, int32_t part) const {
        const uint32_t *word = net(u);
        __builtin_prefetch(word);
        if (dense(u)) __builtin_prefetch(word + bits_ + part);
    }
    static int32_t part_of(uint32_t word) { return static_cast<int32_t>(word >> 20); }
    static int32_t count_of(uint32_t word) { return static_cast<int32_t>(word & 0xfffff); }

    // Nodes of u's net in parts a and b.
    std::pair<int32_t, int32_t> counts(int32_t u, int32_t a, int32_t b) const;
    // One node of u's net goes from part a to part b.
    void move(int32_t u, int32_t a, int32_t b);
    // Finds the saturated nets anew; moves only ever unmark them.
    void mark_saturated(Work &work);

private:
    static constexpr uint16_t LENGTH = 0x1fff, DENSE = 0x4000, SATURATED = 0x8000;
    static constexpr int BLOCK = 16;  // nodes per 64-bit base, log2: the rest of an offset fits 32 bits
    int64_t at(int32_t u) const { return base_[u >> BLOCK] + offset_[u]; }

    const Graph &g_;
    const int32_t parts_;
    const int bits_;  // words that hold a bit for each part
    int64_t sum_ = 0;
    std::vector<int64_t> extent_, base_;
    Buffer<uint32_t> offset_, words_;
    Buffer<uint16_t> state_;
};

}  // namespace grinnder
