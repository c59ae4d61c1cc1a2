/* Several threads share a queue: each gets its own results, whoever waits; counting and injecting meanwhile is safe. */
#include <pthread.h>

#include "io_file.h"

enum { threads = 4, rounds = 60, blocks = 3 };
static grinnder_io_queue *queue;
static int fd;

static void *work(void *number) {
    const uint64_t me = (uint64_t)(uintptr_t)number, bytes = blocks * BLOCK;
    unsigned char *wrote = aligned(bytes), *read_back = aligned(bytes);
    for (uint64_t round = 0; round < rounds; ++round) {
        memset(wrote, (int)(me * rounds + round), bytes);
        const uint64_t tag = (me * rounds + round) * 2, offset = me * bytes;
        CHECK(grinnder_io_submit(queue, WRITE, fd, wrote, bytes, offset, tag) == 0);
        CHECK(grinnder_io_wait(queue, tag, PATIENCE_MS, NULL) == (int64_t)bytes);
        CHECK(grinnder_io_submit(queue, READ, fd, read_back, bytes, offset, tag + 1) == 0);
        CHECK(grinnder_io_wait(queue, tag + 1, PATIENCE_MS, NULL) == (int64_t)bytes);
        CHECK(memcmp(wrote, read_back, bytes) == 0);
    }
    free(wrote);
    free(read_back);
    return NULL;
}

int main(void) {
    queue = open_queue(3, BLOCK);
    fd = open_file(1);
    CHECK(grinnder_io_inject(queue, READ, 7, 5, SHORT, 0) == 0);
    CHECK(grinnder_io_inject(queue, WRITE, 11, 9, FAIL, EAGAIN) == 0);
    CHECK(grinnder_io_shuffle(queue, 5) == 0);
    pthread_t started[threads];
    for (uint64_t i = 0; i < threads; ++i)
        CHECK(pthread_create(&started[i], NULL, work, (void *)(uintptr_t)i) == 0);
    grinnder_io_counters counters;
    for (int i = 0; i < 100; ++i) CHECK(grinnder_io_count(queue, &counters) == 0);
    CHECK(grinnder_io_limit(queue, 1ull << 40) == 0);
    for (int i = 0; i < threads; ++i) CHECK(pthread_join(started[i], NULL) == 0);
    CHECK(grinnder_io_count(queue, &counters) == 0);
    CHECK(counters.waiting == 0 && counters.retries > 0 && counters.short_transfers > 0);
    CHECK(counters.write_bytes == (uint64_t)threads * rounds * blocks * BLOCK);
    CHECK(counters.read_bytes == counters.write_bytes);
    close(fd);
    close_queue(queue);
    return 0;
}
