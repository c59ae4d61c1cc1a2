/* A request above Linux's limit of one transfer (2 GiB - 4 KiB) comes back whole. The buffer is one small memory mapped
 * over and over, the file sparse, so that the test needs neither memory nor disk. */
#include "io_file.h"
#include <sys/mman.h>

int main(void) {
    grinnder_io_queue *queue = open_queue(4, 0);
    const int fd = open_file(1);
    const uint64_t window = 64ull << 20, bytes = 34 * window; /* 2.125 GiB */
    if (ftruncate(fd, (off_t)bytes)) skip("no sparse files of this size here");
    const int memory = memfd_create("window", MFD_CLOEXEC);
    CHECK(memory >= 0 && ftruncate(memory, (off_t)window) == 0);
    unsigned char *buffer = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(buffer != MAP_FAILED);
    for (uint64_t at = 0; at < bytes; at += window)
        CHECK(mmap(buffer + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) == buffer + at);
    unsigned char *block = aligned(BLOCK);
    memset(block, 0x5a, BLOCK);
    CHECK(transfer(queue, WRITE, fd, block, BLOCK, bytes - BLOCK) == BLOCK);
    CHECK(transfer(queue, READ, fd, buffer, bytes, 0) == (int64_t)bytes);
    CHECK(memcmp(buffer + bytes - BLOCK, block, BLOCK) == 0); /* the last piece was the last to arrive */
    CHECK(buffer[0] == 0);
    const int sink = open("/dev/null", O_WRONLY);
    CHECK(sink >= 0 && transfer(queue, WRITE, sink, buffer, bytes, 0) == (int64_t)bytes);
    grinnder_io_counters counters;
    CHECK(grinnder_io_count(queue, &counters) == 0);
    CHECK(counters.transfers == 1 + 3 + 3 && counters.short_transfers == 0);
    close_queue(queue);
    free(block);
    return 0;
}
