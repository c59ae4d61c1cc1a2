#include "transfer.h"

#include <errno.h>

#include <algorithm>

namespace grinnder {

int Faults::add(int op, uint64_t nth, uint64_t count, int effect, int64_t value) {
    if ((op != op_read && op != op_write) || nth == 0 || effect < 0 || effect > 4) return -EINVAL;
    if ((effect == 3 && op != op_write) || (effect == 4 && op != op_read)) return -EINVAL;
    if ((effect == 0 && value <= 0) || (effect == 2 && value < 0)) return -EINVAL;
    if (used_ == static_cast<int>(faults_.size())) return -ENOSPC;
    faults_[static_cast<size_t>(used_++)] = {op, nth, count, effect, value};
    return 0;
}

void Faults::apply(Request &r) {
    r.told = -1;
    r.fail = 0;
    r.lost = r.flip = false;
    r.delay = {};
    const uint64_t number = ++seen_[r.op];
    for (int i = 0; i < used_; ++i) {
        const Fault &f = faults_[static_cast<size_t>(i)];
        if (f.op != r.op || number < f.nth || (f.count && number - f.nth >= f.count)) continue;
        const int64_t piece = static_cast<int64_t>(r.piece);
        if (f.effect == 0) r.fail = static_cast<int>(f.value);
        if (f.effect == 1)
            r.told = std::clamp<int64_t>(f.value > 0 ? f.value : f.value == 0 ? piece / 2 : piece + f.value, 0, piece);
        if (f.effect == 2) r.delay = std::chrono::milliseconds(f.value);
        if (f.effect == 3) r.lost = true;
        if (f.effect == 4) r.flip = true;
    }
}

void next_piece(Request &r, uint64_t piece_bytes, Faults &faults) {
    r.piece = r.wanted = std::min(r.nbytes - r.done, piece_bytes);
    faults.apply(r);
    // What a short transfer leaves out must really stay untouched, as far as O_DIRECT allows.
    if (r.told >= 0) {
        const uint64_t told = static_cast<uint64_t>(std::max<int64_t>(r.told, 1));
        const uint64_t unit = r.direct ? block_bytes : 1;
        r.piece = std::min(r.piece, (told + unit - 1) / unit * unit);
    }
}

Next take_result(Request &r, int64_t result) {
    if (result == -EINTR || result == -EAGAIN) {
        if (++r.retries <= max_retries) return Next::retry_later;
    }
    if (result < 0) {
        r.error = static_cast<int>(-result);
        return Next::finished;
    }
    r.retries = 0;
    if (r.flip && result > 0) r.buffer[r.done] = static_cast<char>(r.buffer[r.done] ^ 1);
    if (r.told >= 0) result = std::min(result, r.told);
    if (static_cast<uint64_t>(result) > r.piece) {  // the kernel never does; a result must not be trusted for it
        r.error = EIO;
        return Next::finished;
    }
    if (result == 0 && r.told < 0) {
        r.error = r.op == op_read ? ENODATA : EIO;
        return Next::finished;
    }
    uint64_t done = r.done + static_cast<uint64_t>(result);
    if (done == r.nbytes) {
        r.done = done;
        return Next::finished;
    }
    if (r.direct) done = done / block_bytes * block_bytes;  // O_DIRECT refuses to go on in the middle of a block
    if (done > r.done) {
        r.done = done;
        r.stalls = 0;
    } else if (++r.stalls > max_stalls) {
        r.error = r.op == op_read ? ENODATA : EIO;  // a read stalls at the end of a file that ends inside a block
        return Next::finished;
    }
    return Next::transfer_again;
}

void Pace::spend(uint64_t bytes, Clock::time_point now) {
    constexpr auto credit = std::chrono::milliseconds(20);  // what an idle queue may catch up
    const std::chrono::duration<double> cost(static_cast<double>(bytes) / static_cast<double>(bytes_per_s_));
    due_ = std::max(due_, now - credit) + std::chrono::duration_cast<Clock::duration>(cost);
}

Clock::duration backoff(int retries) { return std::chrono::microseconds(std::min(50 * retries, 5000)); }

}  // namespace grinnder
