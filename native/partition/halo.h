// Refinement by own + halo rows. Gain of moving v from a to b: nets that lose a (v was their only node there) less nets
// that b newly enters. Moves are proposed side by side on a frozen table and checked again, exactly, when they are
// made.
#pragma once
#include "pins.h"

namespace grinnder {

struct Move {
    int32_t v;
    uint16_t to;
    int16_t gain;  // clamped: it only decides an order
};

class HaloRefinement {
public:
    HaloRefinement(Work &work, const Graph &g, int32_t parts, int64_t cap, double largest, Parts part, Loads &load);

    // One round of moves into parts with room, in SUBROUNDS.
    void round(int number, uint64_t salt);
    // Moves into full parts that gain more than the cheapest moves out of them cost.
    void exchange();
    // After each round: who is looked at in the next, and which nets nobody needs to look at.
    void settle();
    int64_t sum() const { return pins_.sum(); }

private:
    struct Scratch {
        std::vector<int32_t> count, inside, touched;  // per part: v's nets with it, less `base`; v's neighbours
        int32_t sole = 0, nets = 0;                   // nets where v is its part's only node; nets that were counted
        int32_t base = 0;                             // nets of which only the parts that are not in it were counted
        bool all = false;                             // candidates are all parts in a net, not only `touched`
        int32_t in(int32_t part) const { return base + count[part]; }
    };
    struct Exact {
        int32_t gain;  // rows fewer, in all
        int32_t entered;  // nets that are new to the part it goes to
    };

    void score(int32_t v, Scratch &s) const;
    void forget(int32_t v, Scratch &s) const;
    template <class See>
    void candidates(int32_t from, const Scratch &s, See see) const;
    void propose(int32_t v, std::vector<Move> &list, Scratch &s) const;
    bool commit(const Move &move);
    Exact exact(int32_t v, int32_t to) const;
    void apply(int32_t v, int32_t to, bool now);
    bool fits(int32_t to, int64_t entered) const { return pins_.extent()[to] + entered <= most_; }
    void find_full();
    void evictions(const std::vector<uint8_t> &wanted, std::vector<Move> &moves);

    static constexpr uint8_t NOW = 1, NEXT = 2;  // looked at in this round; in the next
    static constexpr uint16_t BLOCKED = 0x8000;  // in a proposal's `to`: it waits for the exchange step
    // Something moves beside a hub in every round, and a look at it costs as much as at all its neighbours.
    static constexpr uint64_t HUB_ROUNDS = 4;

    Work &work_;
    const Graph &g_;
    const int32_t parts_;
    const int64_t cap_;
    const Parts part_;
    Loads &load_;
    Pins pins_;
    int64_t most_;  // own + halo rows that no part may come to by a move
    const int64_t hub_;
    Buffer<uint8_t> active_;
    std::vector<uint8_t> full_;  // parts without room, or nearly so
    std::vector<Move> blocked_;  // of this round: moves into full parts
    std::vector<Scratch> scratch_;
};

}  // namespace grinnder
