/* Moves the clocks that a program reads through libc: the wall clock, and the monotonic one. Loaded into servers and
 * workers by LD_PRELOAD. CLOCK_FILE names a file of two numbers of 64 bits, in nanoseconds: by how much each is
 * moved. It is read at every call, so a test moves the clock of a running program by writing to it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *moved;

static long long offset(int which) {
    if (!moved) {
        const char *path = getenv("CLOCK_FILE");
        int file = path ? open(path, O_RDONLY) : -1;
        if (file < 0) return 0;
        void *map = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (map == MAP_FAILED) return 0;
        moved = map;
    }
    return moved[which];
}

int clock_gettime(clockid_t id, struct timespec *time) {
    if (syscall(SYS_clock_gettime, id, time)) return -1;
    long long by = 0;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) by = offset(0);
    if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_MONOTONIC_RAW) by = offset(1);
    long long nanos = time->tv_sec * 1000000000LL + time->tv_nsec + by;
    time->tv_sec = nanos / 1000000000;
    time->tv_nsec = nanos % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    time->tv_sec = exact.tv_sec;
    time->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
