/* Faults no count tells of: a write that is lost, a bit that changes. The checks above this library are tested with them. */
#include "io_file.h"

int main(void) {
    grinnder_io_queue *queue = open_queue(2, 2 * BLOCK);
    const uint64_t bytes = 5 * BLOCK;
    unsigned char *content = aligned(bytes), *readback = aligned(bytes);
    const int fd = open_file(1);
    fill(content, bytes);
    CHECK(grinnder_io_inject(queue, WRITE, 2, 1, LOST, 0) == 0); /* the second piece */
    CHECK(ftruncate(fd, (off_t)bytes) == 0);
    CHECK(transfer(queue, WRITE, fd, content, bytes, 0) == (int64_t)bytes);
    CHECK(transfer(queue, READ, fd, readback, bytes, 0) == (int64_t)bytes);
    CHECK(memcmp(readback, content, 2 * BLOCK) == 0 && readback[2 * BLOCK] == 0);
    CHECK(memcmp(readback + 4 * BLOCK, content + 4 * BLOCK, BLOCK) == 0);

    CHECK(transfer(queue, WRITE, fd, content, bytes, 0) == (int64_t)bytes);
    CHECK(grinnder_io_inject(queue, READ, 6, 1, FLIP, 0) == 0); /* the third piece of the next read */
    CHECK(transfer(queue, READ, fd, readback, bytes, 0) == (int64_t)bytes);
    CHECK(readback[4 * BLOCK] == (content[4 * BLOCK] ^ 1));
    readback[4 * BLOCK] ^= 1;
    CHECK(memcmp(readback, content, bytes) == 0);

    CHECK(grinnder_io_inject(queue, READ, 1, 1, LOST, 0) == -EINVAL);
    CHECK(grinnder_io_inject(queue, WRITE, 1, 1, FLIP, 0) == -EINVAL);
    CHECK(grinnder_io_inject(queue, WRITE, 1, 1, 5, 0) == -EINVAL);
    close_queue(queue);
    free(content), free(readback);
    return 0;
}
