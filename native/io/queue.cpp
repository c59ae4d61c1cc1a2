#include "queue.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace grinnder {
namespace {

// user_data of what is not a request; requests are pointers, never this small.
constexpr uint64_t data_wake = 1, data_timer = 2, data_cancel = 3;
constexpr unsigned spare_entries = 8;
constexpr size_t shuffle_window = 4;
constexpr auto shuffle_patience = std::chrono::milliseconds(2);
constexpr auto cancel_patience = std::chrono::seconds(2);

}  // namespace

Queue::Queue(uint32_t depth, uint64_t piece_bytes)
    : depth_(depth), piece_bytes_(piece_bytes ? piece_bytes : max_piece_bytes) {}

Queue::~Queue() {
    if (thread_.joinable()) thread_.join();
    if (wake_fd_ >= 0) ::close(wake_fd_);
}

int Queue::start() {
    wake_fd_ = eventfd(0, EFD_CLOEXEC);
    if (wake_fd_ < 0) return -errno;
    thread_ = std::thread([this] { run(depth_); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_; });
    return set_up_error_;
}

int Queue::submit(std::unique_ptr<Request> request) {
    {
        std::lock_guard lock(mutex_);
        if (stopping_) return -ESHUTDOWN;
        Request *r = request.get();
        if (!requests_.try_emplace(r->tag, std::move(request)).second) return -EEXIST;
        ++counters_.waiting;
        fresh_.push_back(r);
        if (fresh_.size() > 1) return 0;  // the thread was woken for the first one and takes all
    }
    wake();
    return 0;
}

int64_t Queue::wait(uint64_t tag, int64_t timeout_ms, uint64_t *done) {
    std::unique_lock lock(mutex_);
    const auto until = Clock::now() + std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, 1ll << 40));
    for (;;) {
        const auto found = requests_.find(tag);  // looked up anew: another thread may have taken the result
        if (found == requests_.end()) return -ENOENT;
        const Request &r = *found->second;
        if (r.complete) {
            if (done) *done = r.done;
            const int64_t result = r.error ? -static_cast<int64_t>(r.error) : static_cast<int64_t>(r.nbytes);
            requests_.erase(found);
            return result;
        }
        if (changed_.wait_until(lock, until) == std::cv_status::timeout) {
            const auto again = requests_.find(tag);
            if (again != requests_.end() && !again->second->complete) return -ETIMEDOUT;
        }
    }
}

int Queue::shut_down(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake();
    const auto patience = std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, 1ll << 40));
    if (changed_.wait_for(lock, patience, [this] { return ended_; })) return 0;
    cancelling_ = true;
    wake();
    return changed_.wait_for(lock, cancel_patience, [this] { return ended_; }) ? 0 : -ETIMEDOUT;
}

grinnder_io_counters Queue::count() {
    std::lock_guard lock(mutex_);
    return counters_;
}

int Queue::inject(int op, uint64_t nth, uint64_t count, int effect, int64_t value) {
    std::lock_guard lock(mutex_);
    return faults_.add(op, nth, count, effect, value);
}

void Queue::shuffle(uint64_t seed) {
    std::lock_guard lock(mutex_);
    shuffle_ = seed;
}

void Queue::limit(uint64_t bytes_per_s) {
    std::lock_guard lock(mutex_);
    limit_ = bytes_per_s;
}

void Queue::wake() const {
    const uint64_t one = 1;
    while (::write(wake_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

// ---- From here on: the queue's own thread. ----

int Queue::set_up(uint32_t depth) {
    const unsigned entries = depth + spare_entries;
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
    // Completions are then worked out in this thread when it asks for them, not by interrupting it.
    const int code = io_uring_queue_init(entries, &ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (code != -EINVAL) return code;
#endif
    return io_uring_queue_init(entries, &ring_, 0);
}

void Queue::run(uint32_t depth) {
    const int code = set_up(depth);
    {
        std::lock_guard lock(mutex_);
        started_ = true;
        set_up_error_ = code;
        changed_.notify_all();
        if (code < 0) return;
    }
    while (take_new()) {
        while (may_issue() && !(pace_.limited() && Clock::now() < pace_.due())) {
            Request &next = *pending_.front();
            pending_.pop_front();
            issue(next);
        }
        arm();
        submit_and_wait();
        reap();
        release_held();
    }
    io_uring_queue_exit(&ring_);
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
}

bool Queue::take_new() {
    bool stopping, cancelling;
    {
        std::lock_guard lock(mutex_);
        pending_.insert(pending_.end(), fresh_.begin(), fresh_.end());
        fresh_.clear();
        stopping = stopping_;
        cancelling = cancelling_;
        pace_.limit(limit_);
    }
    if (broken_) fail_all(broken_);
    if (!stopping) return true;
    for (Request *r : std::exchange(pending_, {})) {
        r->error = ECANCELED;
        finish(*r);
    }
    if (cancelling && !cancelled_) cancel_in_kernel();
    return !(in_kernel_.empty() && held_.empty());
}

bool Queue::may_issue() const { return !pending_.empty() && in_kernel_.size() < depth_; }

io_uring_sqe *Queue::sqe() {
    io_uring_sqe *entry = io_uring_get_sqe(&ring_);
    while (!entry && !broken_) {  // full: hand over what is there
        const int code = io_uring_submit(&ring_);
        if (code < 0 && code != -EINTR && code != -EAGAIN && code != -EBUSY) broken_ = -code;
        entry = io_uring_get_sqe(&ring_);
    }
    return entry;
}

void Queue::issue(Request &r) {
    {
        std::lock_guard lock(mutex_);
        next_piece(r, piece_bytes_, faults_);
        ++counters_.transfers;
    }
    in_kernel_.push_back(&r);
    if (pace_.limited()) pace_.spend(r.piece, Clock::now());
    if (r.lost) return arrived(r, static_cast<int64_t>(r.piece));
    if (r.fail) return arrived(r, -r.fail);
    if (r.piece == 0) return arrived(r, 0);  // an empty request
    io_uring_sqe *entry = sqe();
    if (!entry) return arrived(r, -broken_);
    const unsigned bytes = static_cast<unsigned>(r.piece);
    if (r.op == op_read) io_uring_prep_read(entry, r.fd, r.buffer + r.done, bytes, r.offset + r.done);
    else io_uring_prep_write(entry, r.fd, r.buffer + r.done, bytes, r.offset + r.done);
    io_uring_sqe_set_data(entry, &r);
}

// Something to wake up for: a new request, the next held result, or the moment the pace allows the next transfer.
void Queue::arm() {
    if (!wake_armed_) {
        if (io_uring_sqe *entry = sqe()) {
            io_uring_prep_poll_add(entry, wake_fd_, POLLIN);
            io_uring_sqe_set_data64(entry, data_wake);
            wake_armed_ = true;
        }
    }
    const bool paced = pace_.limited() && may_issue();
    if ((paced || !held_.empty()) && !timer_armed_) {
        auto due = paced ? pace_.due() : held_.front().due;
        for (const Held &h : held_) due = std::min(due, h.due);
        const auto us = std::chrono::duration_cast<std::chrono::microseconds>(due - Clock::now()).count();
        timer_ = {0, std::clamp<long long>(us, 20, 5000) * 1000};
        if (io_uring_sqe *entry = sqe()) {
            io_uring_prep_timeout(entry, &timer_, 0, 0);
            io_uring_sqe_set_data64(entry, data_timer);
            timer_armed_ = true;
        }
    }
}

void Queue::submit_and_wait() {
    if (broken_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
    }
    const int code = io_uring_submit_and_wait(&ring_, 1);
    if (code >= 0 || code == -EINTR) return;
    // Out of kernel memory for now: entries stay in the ring and go with the next call.
    if (code == -EAGAIN || code == -EBUSY) std::this_thread::sleep_for(std::chrono::microseconds(200));
    else broken_ = -code;
}

void Queue::reap() {
    io_uring_cqe *entry;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
        const uint64_t data = io_uring_cqe_get_data64(entry);
        const int64_t result = entry->res;
        io_uring_cqe_seen(&ring_, entry);
        if (data == data_wake) {
            wake_armed_ = false;
            uint64_t ignored;
            while (result > 0 && ::read(wake_fd_, &ignored, sizeof ignored) < 0 && errno == EINTR) {
            }
        } else if (data == data_timer) {
            timer_armed_ = false;
        } else if (data != data_cancel) {
            arrived(*reinterpret_cast<Request *>(data), result);
        }
    }
}

// A result is processed at once, or later where a test wants delays or another order.
void Queue::arrived(Request &r, int64_t result) {
    bool shuffling;
    {
        std::lock_guard lock(mutex_);
        shuffling = shuffle_ != 0;
    }
    if (r.delay.count()) held_.push_back({&r, result, false, Clock::now() + r.delay});
    else if (shuffling) held_.push_back({&r, result, false, Clock::now() + shuffle_patience});
    else process(r, result);
}

void Queue::process(Request &r, int64_t result) {
    in_kernel_.erase(std::find(in_kernel_.begin(), in_kernel_.end(), &r));
    const uint64_t before = r.done;
    const Next next = r.nbytes == 0 && result == 0 ? Next::finished : take_result(r, result);
    {
        std::lock_guard lock(mutex_);
        (r.op == op_read ? counters_.read_bytes : counters_.write_bytes) += r.done - before;
        if (next == Next::transfer_again && r.done - before < r.wanted) ++counters_.short_transfers;
        if (next == Next::retry_later) ++counters_.retries;
        if (stopping_ && next != Next::finished) r.error = ECANCELED;
    }
    if (next == Next::finished || r.error) finish(r);
    else if (next == Next::retry_later) held_.push_back({&r, 0, true, Clock::now() + backoff(r.retries)});
    else pending_.push_front(&r);  // ahead of requests that have not begun
}

void Queue::release_held() {
    uint64_t seed;
    {
        std::lock_guard lock(mutex_);
        seed = shuffle_;
    }
    const auto now = Clock::now();
    std::vector<Held> due, later;
    const bool window_full = held_.size() >= shuffle_window;
    for (const Held &h : held_) {
        const bool early = seed && window_full && !h.repeat && !h.request->delay.count();
        (h.due <= now || early ? due : later).push_back(h);
    }
    held_ = std::move(later);
    for (size_t i = due.size(); seed && i > 1; --i) {  // Fisher-Yates over a linear congruential generator
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(due[i - 1], due[(seed >> 33) % i]);
    }
    for (const Held &h : due) {
        if (h.repeat) pending_.push_front(h.request);
        else process(*h.request, h.result);
    }
    std::lock_guard lock(mutex_);
    if (shuffle_) shuffle_ = seed | 1;
}

void Queue::finish(Request &r) {
    std::lock_guard lock(mutex_);
    r.complete = true;
    --counters_.waiting;
    changed_.notify_all();
}

void Queue::cancel_in_kernel() {
    cancelled_ = true;
    for (Request *r : in_kernel_) {
        io_uring_sqe *entry = sqe();
        if (!entry) return;
        io_uring_prep_cancel64(entry, reinterpret_cast<uint64_t>(r), 0);
        io_uring_sqe_set_data64(entry, data_cancel);
    }
}

// The ring itself failed: nothing will arrive any more.
void Queue::fail_all(int error) {
    std::vector<Request *> all(pending_.begin(), pending_.end());
    all.insert(all.end(), in_kernel_.begin(), in_kernel_.end());
    for (const Held &h : held_)
        if (h.repeat) all.push_back(h.request);
    pending_.clear();
    in_kernel_.clear();
    held_.clear();
    for (Request *r : all) {
        r->error = error;
        finish(*r);
    }
}

}  // namespace grinnder
