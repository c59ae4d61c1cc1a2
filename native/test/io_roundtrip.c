/* What was written is read back: many requests in flight, any depth, any piece size, aligned and not. */
#include "io_file.h"

static void round_trip(uint32_t depth, uint64_t piece, int direct) {
    grinnder_io_queue *queue = open_queue(depth, piece);
    const int fd = open_file(direct);
    enum { n = 40 };
    unsigned char *out[n], *in[n];
    uint64_t bytes[n], offset[n], end = 0, total = 0;
    for (int i = 0; i < n; ++i) {
        bytes[i] = direct ? (uint64_t)random_below(20) * BLOCK : (uint64_t)random_below(70000);
        offset[i] = end;
        end += bytes[i];
        total += bytes[i];
        out[i] = aligned(bytes[i]), in[i] = aligned(bytes[i]);
        fill(out[i], bytes[i]);
    }
    for (int i = 0; i < n; ++i) CHECK(grinnder_io_submit(queue, WRITE, fd, out[i], bytes[i], offset[i], i) == 0);
    for (int i = n - 1; i >= 0; --i) { /* in another order than they were submitted */
        uint64_t done = 0;
        CHECK(grinnder_io_wait(queue, i, PATIENCE_MS, &done) == (int64_t)bytes[i] && done == bytes[i]);
    }
    for (int i = n - 1; i >= 0; --i) CHECK(grinnder_io_submit(queue, READ, fd, in[i], bytes[i], offset[i], i) == 0);
    for (int i = 0; i < n; ++i) {
        CHECK(grinnder_io_wait(queue, i, PATIENCE_MS, NULL) == (int64_t)bytes[i]);
        CHECK(memcmp(in[i], out[i], bytes[i]) == 0);
        free(in[i]), free(out[i]);
    }
    grinnder_io_counters counters;
    CHECK(grinnder_io_count(queue, &counters) == 0);
    CHECK(counters.read_bytes == total && counters.write_bytes == total && counters.waiting == 0);
    close(fd);
    close_queue(queue);
}

int main(void) {
    round_trip(1, 0, 1);
    round_trip(3, BLOCK, 1);
    round_trip(8, 4 * BLOCK, 0);
    round_trip(64, 0, 0);
    return 0;
}
