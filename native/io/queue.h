// A queue: the requests, and the thread that owns the ring.
#pragma once
#include <liburing.h>
#include <stdint.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "export.h"
#include "transfer.h"

namespace grinnder {

class Queue {  // what a `grinnder_io_queue *` points to
public:
    Queue(uint32_t depth, uint64_t piece_bytes);
    ~Queue();
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;
    int start();  // 0, or -errno of the ring's set-up
    int submit(std::unique_ptr<Request> request);
    int64_t wait(uint64_t tag, int64_t timeout_ms, uint64_t *done);
    int shut_down(int64_t timeout_ms);
    grinnder_io_counters count();
    int inject(int op, uint64_t nth, uint64_t count, int effect, int64_t value);
    void shuffle(uint64_t seed);
    void limit(uint64_t bytes_per_s);

private:
    struct Held {  // a result that is processed later, or a request that is repeated later
        Request *request;
        int64_t result;
        bool repeat;
        Clock::time_point due;
    };

    void run(uint32_t depth);
    int set_up(uint32_t depth);
    bool take_new();  // false: time to end
    bool may_issue() const;  // the kernel has room, and there is something for it
    void issue(Request &r);
    void arm();
    void submit_and_wait();
    void reap();
    void arrived(Request &r, int64_t result);
    void process(Request &r, int64_t result);
    void release_held();
    void finish(Request &r);
    void cancel_in_kernel();
    void fail_all(int error);
    void wake() const;
    io_uring_sqe *sqe();

    const uint32_t depth_;
    const uint64_t piece_bytes_;
    int wake_fd_ = -1;
    std::thread thread_;

    // Shared, under mutex_.
    std::mutex mutex_;
    std::condition_variable changed_;
    std::unordered_map<uint64_t, std::unique_ptr<Request>> requests_;
    std::vector<Request *> fresh_;
    Faults faults_;
    grinnder_io_counters counters_{};
    uint64_t shuffle_ = 0, limit_ = 0;
    bool stopping_ = false, cancelling_ = false, started_ = false, ended_ = false;
    int set_up_error_ = 0;

    // The thread's own.
    io_uring ring_{};
    std::deque<Request *> pending_;
    std::vector<Request *> in_kernel_;
    std::vector<Held> held_;
    Pace pace_;
    __kernel_timespec timer_{};
    bool wake_armed_ = false, timer_armed_ = false, cancelled_ = false;
    int broken_ = 0;  // errno of a ring that no longer works
};

}  // namespace grinnder
