/* Closing gives up what has not begun, waits for the rest, and ends in bounded time even if a transfer never does. */
#include "io_file.h"

int main(void) {
    unsigned char *buffer = aligned(BLOCK);
    grinnder_io_queue *queue = open_queue(1, 0);
    const int fd = open_file(0);
    CHECK(transfer(queue, WRITE, fd, buffer, BLOCK, 0) == BLOCK);
    CHECK(grinnder_io_inject(queue, READ, 1, 0, LATE, 50) == 0);
    for (uint64_t tag = 0; tag < 100; ++tag)
        CHECK(grinnder_io_submit(queue, READ, fd, buffer, BLOCK, 0, tag) == 0);
    close_queue(queue); /* 100 reads of 50 ms each would take 5 s: nearly all are given up */

    int ends[2];
    CHECK(pipe(ends) == 0);
    queue = open_queue(4, 0);
    CHECK(grinnder_io_submit(queue, READ, ends[0], buffer, BLOCK, 0, 1) == 0); /* nobody writes */
    CHECK(grinnder_io_wait(queue, 1, 50, NULL) == -ETIMEDOUT);
    CHECK(grinnder_io_close(queue, 50) == 0); /* by cancelling it */
    free(buffer);
    return 0;
}
