/* At every single transfer: a failure is reported, short counts, interruptions, delays and another order of completion
 * change nothing. */
#include "io_file.h"

enum { requests = 6, blocks = 5 };
static const uint64_t request_bytes = blocks * BLOCK;
static unsigned char *content[requests], *readback[requests];

/* Writes and reads everything back with a fault in force. Returns the first error, 0 if there was none. */
static int64_t attempt(int direct, int op, uint64_t nth, uint64_t count, int effect, int64_t value, uint64_t seed,
                       grinnder_io_counters *counters) {
    grinnder_io_queue *queue = open_queue(3, 2 * BLOCK);
    const int fd = open_file(direct);
    int64_t error = 0;
    if (nth) CHECK(grinnder_io_inject(queue, op, nth, count, effect, value) == 0);
    CHECK(grinnder_io_shuffle(queue, seed) == 0);
    for (int pass = WRITE; pass >= READ; --pass) {
        for (int i = 0; i < requests; ++i)
            CHECK(grinnder_io_submit(queue, pass, fd, pass == WRITE ? content[i] : readback[i], request_bytes,
                                     (uint64_t)i * request_bytes, (uint64_t)i) == 0);
        for (int i = 0; i < requests; ++i) {
            uint64_t done = 0;
            const int64_t result = grinnder_io_wait(queue, (uint64_t)i, PATIENCE_MS, &done);
            CHECK(result < 0 ? done < request_bytes : done == request_bytes && result == (int64_t)request_bytes);
            if (result < 0 && !error) error = result;
            if (result > 0 && pass == READ && !error) CHECK(memcmp(content[i], readback[i], request_bytes) == 0);
        }
    }
    if (counters) CHECK(grinnder_io_count(queue, counters) == 0);
    close(fd);
    close_queue(queue);
    return error;
}

int main(void) {
    for (int i = 0; i < requests; ++i) {
        content[i] = aligned(request_bytes), readback[i] = aligned(request_bytes);
        fill(content[i], request_bytes);
    }
    grinnder_io_counters counters;
    CHECK(attempt(1, READ, 0, 0, 0, 0, 0, &counters) == 0);
    const uint64_t transfers = requests * 3; /* of each op: pieces of 2, 2 and 1 blocks */
    CHECK(counters.transfers == 2 * transfers && counters.retries == 0);
    for (int direct = 0; direct < 2; ++direct)
        for (int op = READ; op <= WRITE; ++op)
            for (uint64_t nth = 1; nth <= transfers + 1; ++nth) {
                const int reached = nth <= transfers;
                CHECK(attempt(direct, op, nth, 1, FAIL, EIO, 0, NULL) == (reached ? -EIO : 0));
                CHECK(attempt(direct, op, nth, 0, FAIL, ENOSPC, nth, NULL) == (reached ? -ENOSPC : 0));
                const int64_t counts[] = {1, 0, -1, BLOCK};
                for (int k = 0; k < 4; ++k) {
                    CHECK(attempt(direct, op, nth, 1, SHORT, counts[k], k == 2 ? nth : 0, &counters) == 0);
                    if (reached && k < 3) CHECK(counters.short_transfers == 1);
                }
                CHECK(attempt(direct, op, nth, 9, FAIL, EAGAIN, 0, &counters) == 0);
                if (reached) CHECK(counters.retries > 0);
                CHECK(attempt(direct, op, nth, 3, FAIL, EINTR, nth, NULL) == 0);
                if (nth % 5 == 0) CHECK(attempt(direct, op, nth, 2, LATE, 3, 0, NULL) == 0);
            }
    CHECK(attempt(0, WRITE, 1, 0, SHORT, 1000, 0, NULL) == 0); /* short every time still gets there */
    CHECK(attempt(0, READ, 1, 0, SHORT, 1, 0, NULL) == 0);
    const int64_t stuck = attempt(1, WRITE, 1, 0, SHORT, 1, 0, NULL); /* O_DIRECT cannot go on inside a block */
    CHECK(stuck == -EIO || stuck == 0);                               /* 0: no O_DIRECT on this file system */
    for (uint64_t seed = 1; seed < 30; ++seed) CHECK(attempt(1, READ, 0, 0, 0, 0, seed, NULL) == 0);
    return 0;
}
