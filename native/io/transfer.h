// The one place that decides what is handed to the kernel and what a result means. No system calls: see queue.cpp.
#pragma once
#include <stdint.h>

#include <array>
#include <chrono>

namespace grinnder {

using Clock = std::chrono::steady_clock;

enum Op : int { op_read = 0, op_write = 1 };

constexpr uint64_t block_bytes = 4096;  // O_DIRECT continues on such a boundary, whatever the device
constexpr uint64_t max_piece_bytes = 1ull << 30;
constexpr int max_stalls = 16;      // results in a row that moved nothing on
constexpr int max_retries = 2000;   // EINTR / EAGAIN in a row: about ten seconds

struct Request {
    int op;
    int fd;
    char *buffer;
    uint64_t nbytes, offset, tag;
    bool direct;            // O_DIRECT: transfers begin and end on block boundaries
    uint64_t done = 0;      // bytes known to be transferred, from the start on
    uint64_t piece = 0;     // bytes of the transfer in the kernel
    uint64_t wanted = 0;    // the same before injection cut it down
    int error = 0;          // errno of the failure that ended the request
    int stalls = 0, retries = 0;
    bool complete = false;
    // What injection has in store for the transfer in the kernel.
    int64_t told = -1;      // report at most this many bytes
    int fail = 0;
    bool lost = false, flip = false;
    Clock::duration delay{};
};

enum class Next { finished, transfer_again, retry_later };

// Faults asked for by tests.
class Faults {
public:
    int add(int op, uint64_t nth, uint64_t count, int effect, int64_t value);
    // Counts the transfer about to start and writes what is to happen to it into the request.
    void apply(Request &r);

private:
    struct Fault {
        int op;
        uint64_t nth, count;
        int effect;
        int64_t value;
    };
    std::array<Fault, 16> faults_;
    int used_ = 0;
    uint64_t seen_[2] = {0, 0};
};

// Sets r.piece (and what is injected) for the next transfer.
void next_piece(Request &r, uint64_t piece_bytes, Faults &faults);

// Takes the kernel's result of that transfer (bytes or -errno).
Next take_result(Request &r, int64_t result);

// A bucket of transfers: what is handed over now says when the next may follow.
class Pace {
public:
    void limit(uint64_t bytes_per_s) { bytes_per_s_ = bytes_per_s; }
    bool limited() const { return bytes_per_s_ != 0; }
    Clock::time_point due() const { return due_; }
    void spend(uint64_t bytes, Clock::time_point now);

private:
    uint64_t bytes_per_s_ = 0;
    Clock::time_point due_{};
};

// How long the n-th repetition in a row waits.
Clock::duration backoff(int retries);

}  // namespace grinnder
