/* Storage transfers of grinnder through io_uring: plain C ABI, no macros, so that cffi parses this file as it stands.
 *
 * A queue owns one native thread, the only one that touches the ring: it submits, splits, continues short transfers,
 * repeats interrupted ones and keeps the results. Any thread may call submit and wait, none of them needs Python's
 * lock meanwhile. Functions return >= 0 or -errno; sizes and offsets are bytes; buffers stay the caller's, and must
 * stay alive until wait has returned something else than -ETIMEDOUT for their tag, or close has returned 0. */

typedef struct grinnder_io_queue grinnder_io_queue;

/* What a queue did since it was opened. */
typedef struct {
    uint64_t read_bytes;      /* transferred, padding included */
    uint64_t write_bytes;
    uint64_t transfers;       /* requests handed to the kernel, continuations and repetitions included */
    uint64_t short_transfers; /* transfers that ended early and were continued */
    uint64_t retries;         /* transfers repeated after EINTR or EAGAIN */
    uint64_t waiting;         /* requests submitted but not yet complete, now */
} grinnder_io_counters;

/* Version of this interface. */
int grinnder_io_version(void);

/* 0 if this process may use io_uring with every operation needed here, else -errno: -ENOSYS (kernel), -EPERM (seccomp
 * or the kernel.io_uring_disabled sysctl), -ENOMEM (memlock limit), -EOPNOTSUPP (kernel too old). */
int grinnder_io_probe(void);

/* Open a queue with at most `depth` transfers in the kernel (1 to 4096); further requests wait their turn.
 * piece_bytes: largest single transfer, a multiple of 4096; 0: 1 GiB (Linux transfers 2 GiB - 4 KiB at most). */
int grinnder_io_open(uint32_t depth, uint64_t piece_bytes, grinnder_io_queue **queue);

/* Give up requests that have not begun, wait for those in the kernel, end the thread, free the queue.
 * -ETIMEDOUT if the kernel still holds a buffer after timeout_ms and a cancellation: the queue then stays. */
int grinnder_io_close(grinnder_io_queue *queue, int64_t timeout_ms);

/* Start reading (op 0) or writing (op 1) nbytes at `offset` of fd. Returns at once.
 * With O_DIRECT, buffer, nbytes and offset are multiples of the file system's block size (4096 is always right).
 * -EEXIST if `tag` is in use: tags are free again once wait has returned their result. -EINVAL; -ENOMEM;
 * -ESHUTDOWN after close has begun. */
int grinnder_io_submit(grinnder_io_queue *queue, int op, int fd, void *buffer, uint64_t nbytes, uint64_t offset,
                       uint64_t tag);

/* Wait at most timeout_ms for a request. Returns nbytes, all of it, or -errno of the transfer that failed: -ENODATA for
 * a read past the end of the file, -EIO for a write that makes no progress, -ETIMEDOUT (wait again: the request goes
 * on), -ENOENT for a tag that is not known. done (or null) receives the bytes transferred, also on failure. */
int64_t grinnder_io_wait(grinnder_io_queue *queue, uint64_t tag, int64_t timeout_ms, uint64_t *done);

int grinnder_io_count(grinnder_io_queue *queue, grinnder_io_counters *counters);

/* Hand at most `bytes_per_s` to the kernel, reads and writes together; 0: no limit. Requests that must wait keep no
 * caller waiting: submit returns at once all the same. */
int grinnder_io_limit(grinnder_io_queue *queue, uint64_t bytes_per_s);

/* Tests: change what happens to transfers number nth .. nth + count - 1 (from 1; count 0: all from nth on) of an op,
 * counted since the queue was opened. Effects (at most 16 per queue, else -ENOSPC):
 *   0  fail with errno `value`, nothing is transferred
 *   1  end early after `value` bytes; 0: half of them; -k: all but k
 *   2  complete `value` milliseconds late
 *   3  writes: report success, write nothing (a lost write)
 *   4  reads: flip the lowest bit of the first byte that arrives */
int grinnder_io_inject(grinnder_io_queue *queue, int op, uint64_t nth, uint64_t count, int effect, int64_t value);

/* Tests: hold completions back and process them in shuffled order; seed 0: stop doing so. */
int grinnder_io_shuffle(grinnder_io_queue *queue, uint64_t seed);
