/* A limited queue takes as long as its bytes need, keeps no caller waiting, and closes at once. */
#include <time.h>

#include "io_file.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    grinnder_io_queue *queue = open_queue(8, 0);
    enum { n = 40 };
    const uint64_t bytes = 64 * BLOCK; /* 40 x 256 KiB */
    unsigned char *buffer = aligned(bytes);
    const int fd = open_file(1);
    CHECK(ftruncate(fd, (off_t)(n * bytes)) == 0);
    CHECK(grinnder_io_limit(NULL, 1) == -EINVAL);
    CHECK(grinnder_io_limit(queue, 32u << 20) == 0); /* 10 MiB at 32 MiB/s: 0.31 s, less the credit of 20 ms */
    const double start = now_s();
    for (uint64_t i = 0; i < n; ++i) CHECK(grinnder_io_submit(queue, i % 2, fd, buffer, bytes, i * bytes, i) == 0);
    const double submitted = now_s();
    for (uint64_t i = 0; i < n; ++i) CHECK(grinnder_io_wait(queue, i, PATIENCE_MS, NULL) == (int64_t)bytes);
    CHECK(now_s() - start > 0.25);
    CHECK(submitted - start < 0.2);

    CHECK(grinnder_io_limit(queue, 1) == 0); /* the second would have to wait for days */
    for (uint64_t i = 0; i < 3; ++i) CHECK(grinnder_io_submit(queue, READ, fd, buffer, bytes, 0, i) == 0);
    CHECK(grinnder_io_wait(queue, 2, 20, NULL) == -ETIMEDOUT);
    close_queue(queue);
    free(buffer);
    return 0;
}
