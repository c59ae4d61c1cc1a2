// The C ABI of grinnder_io.h: checks arguments, keeps C++ exceptions inside.
#include <errno.h>
#include <fcntl.h>

#include <new>
#include <system_error>

#include "export.h"
#include "queue.h"

namespace {

grinnder::Queue *own(grinnder_io_queue *queue) { return reinterpret_cast<grinnder::Queue *>(queue); }

}  // namespace

GRINNDER_EXPORT int grinnder_io_version(void) { return 2; }

GRINNDER_EXPORT int grinnder_io_probe(void) {
    io_uring ring;
    const int code = io_uring_queue_init(2, &ring, 0);
    if (code < 0) return code;
    int result = -EOPNOTSUPP;
    if (io_uring_probe *probe = io_uring_get_probe_ring(&ring)) {
        result = 0;
        for (int op : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_POLL_ADD, IORING_OP_TIMEOUT, IORING_OP_ASYNC_CANCEL})
            if (!io_uring_opcode_supported(probe, op)) result = -EOPNOTSUPP;
        io_uring_free_probe(probe);
    }
    io_uring_queue_exit(&ring);
    return result;
}

GRINNDER_EXPORT int grinnder_io_open(uint32_t depth, uint64_t piece_bytes, grinnder_io_queue **queue) {
    if (!queue || depth < 1 || depth > 4096 || piece_bytes > grinnder::max_piece_bytes ||
        piece_bytes % grinnder::block_bytes)
        return -EINVAL;
    *queue = nullptr;
    try {
        auto made = std::make_unique<grinnder::Queue>(depth, piece_bytes);
        const int code = made->start();
        if (code < 0) return code;
        *queue = reinterpret_cast<grinnder_io_queue *>(made.release());
        return 0;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    } catch (const std::system_error &) {
        return -EAGAIN;  // no thread to be had
    }
}

GRINNDER_EXPORT int grinnder_io_close(grinnder_io_queue *queue, int64_t timeout_ms) {
    if (!queue) return -EINVAL;
    const int code = own(queue)->shut_down(timeout_ms);
    if (code == 0) delete own(queue);
    return code;
}

GRINNDER_EXPORT int grinnder_io_submit(grinnder_io_queue *queue, int op, int fd, void *buffer, uint64_t nbytes,
                                       uint64_t offset, uint64_t tag) {
    constexpr uint64_t limit = INT64_MAX;
    if (!queue || (op != grinnder::op_read && op != grinnder::op_write) || fd < 0 || (!buffer && nbytes) ||
        offset > limit || nbytes > limit - offset)
        return -EINVAL;
    try {
        const int flags = fcntl(fd, F_GETFL);  // -1 on a bad descriptor, which the transfer itself reports
        auto request = std::make_unique<grinnder::Request>(grinnder::Request{
            op, fd, static_cast<char *>(buffer), nbytes, offset, tag, flags != -1 && (flags & O_DIRECT)});
        return own(queue)->submit(std::move(request));
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

GRINNDER_EXPORT int64_t grinnder_io_wait(grinnder_io_queue *queue, uint64_t tag, int64_t timeout_ms, uint64_t *done) {
    return queue ? own(queue)->wait(tag, timeout_ms, done) : -EINVAL;
}

GRINNDER_EXPORT int grinnder_io_count(grinnder_io_queue *queue, grinnder_io_counters *counters) {
    if (!queue || !counters) return -EINVAL;
    *counters = own(queue)->count();
    return 0;
}

GRINNDER_EXPORT int grinnder_io_limit(grinnder_io_queue *queue, uint64_t bytes_per_s) {
    if (!queue) return -EINVAL;
    own(queue)->limit(bytes_per_s);
    return 0;
}

GRINNDER_EXPORT int grinnder_io_inject(grinnder_io_queue *queue, int op, uint64_t nth, uint64_t count, int effect,
                                       int64_t value) {
    return queue ? own(queue)->inject(op, nth, count, effect, value) : -EINVAL;
}

GRINNDER_EXPORT int grinnder_io_shuffle(grinnder_io_queue *queue, uint64_t seed) {
    if (!queue) return -EINVAL;
    own(queue)->shuffle(seed);
    return 0;
}
