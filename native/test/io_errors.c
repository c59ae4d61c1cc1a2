/* Failures come back as what they are, with the bytes that were transferred before. */
#include <signal.h>
#include <sys/resource.h>

#include "io_file.h"

int main(void) {
    grinnder_io_queue *queue = open_queue(2, 2 * BLOCK), *none = NULL;
    unsigned char *buffer = aligned(8 * BLOCK);
    uint64_t done = 99;
    const int fd = open_file(0);
    CHECK(transfer(queue, WRITE, fd, buffer, 3 * BLOCK, 0) == 3 * BLOCK);

    /* a read past the end: what is there, then ENODATA */
    CHECK(grinnder_io_submit(queue, READ, fd, buffer, 5 * BLOCK, 0, 1) == 0);
    CHECK(grinnder_io_wait(queue, 1, PATIENCE_MS, &done) == -ENODATA && done == 3 * BLOCK);
    CHECK(grinnder_io_wait(queue, 1, 0, NULL) == -ENOENT); /* a result is handed out once */
    CHECK(ftruncate(fd, BLOCK + 100) == 0);                /* the same where the file ends inside a block */
    CHECK(grinnder_io_submit(queue, READ, fd, buffer, 2 * BLOCK, 0, 1) == 0);
    CHECK(grinnder_io_wait(queue, 1, PATIENCE_MS, &done) == -ENODATA && done == BLOCK + 100);
    const int direct = open_file(1);
    CHECK(transfer(queue, WRITE, direct, buffer, 2 * BLOCK, 0) == 2 * BLOCK && ftruncate(direct, BLOCK + 100) == 0);
    CHECK(grinnder_io_submit(queue, READ, direct, buffer, 2 * BLOCK, 0, 1) == 0);
    CHECK(grinnder_io_wait(queue, 1, PATIENCE_MS, &done) == -ENODATA && done >= BLOCK && done <= BLOCK + 100);

    /* descriptors that cannot do it */
    const int read_only = open("/dev/null", O_RDONLY);
    CHECK(transfer(queue, WRITE, read_only, buffer, BLOCK, 0) == -EBADF);
    CHECK(transfer(queue, READ, 9999, buffer, BLOCK, 0) == -EBADF);

    /* a file size limit: a short write, then EFBIG */
    const struct rlimit limit = {3 * BLOCK, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    grinnder_io_queue *limited = open_queue(2, 0); /* its thread is made under the limit */
    CHECK(grinnder_io_submit(limited, WRITE, fd, buffer, 5 * BLOCK, 0, 1) == 0);
    CHECK(grinnder_io_wait(limited, 1, PATIENCE_MS, &done) == -EFBIG && done == 3 * BLOCK);
    close_queue(limited);

    /* time-outs end a wait, not the request */
    CHECK(grinnder_io_inject(queue, READ, 1, 0, LATE, 300) == 0);
    CHECK(grinnder_io_submit(queue, READ, fd, buffer, BLOCK, 0, 5) == 0);
    CHECK(grinnder_io_submit(queue, READ, fd, buffer, BLOCK, 0, 5) == -EEXIST);
    CHECK(grinnder_io_wait(queue, 5, 10, NULL) == -ETIMEDOUT);
    CHECK(grinnder_io_wait(queue, 5, PATIENCE_MS, NULL) == BLOCK);

    /* arguments */
    CHECK(grinnder_io_open(0, 0, &none) == -EINVAL && grinnder_io_open(8, 100, &none) == -EINVAL);
    CHECK(grinnder_io_open(8, 0, NULL) == -EINVAL && grinnder_io_open(5000, 0, &none) == -EINVAL);
    CHECK(grinnder_io_submit(queue, 2, fd, buffer, BLOCK, 0, 6) == -EINVAL);
    CHECK(grinnder_io_submit(queue, READ, -1, buffer, BLOCK, 0, 6) == -EINVAL);
    CHECK(grinnder_io_submit(queue, READ, fd, NULL, BLOCK, 0, 6) == -EINVAL);
    CHECK(grinnder_io_submit(queue, READ, fd, buffer, BLOCK, UINT64_MAX - 10, 6) == -EINVAL);
    CHECK(grinnder_io_inject(queue, READ, 0, 0, FAIL, EIO) == -EINVAL);
    CHECK(grinnder_io_wait(queue, 6, 0, NULL) == -ENOENT);
    close_queue(queue);
    free(buffer);
    return 0;
}
