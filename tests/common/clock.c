/* Preloaded into a test's server: shifts its clocks by what the file named in RQ_TEST_CLOCK holds, two 64-bit numbers of
 * nanoseconds in the machine's byte order: the first for the wall clock, the second for the time since boot, suspend
 * included. The monotonic clock, by which the server's own loop runs, is left alone, as a suspend leaves it alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile int64_t *shifts;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("RQ_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) shifts = memory;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (syscall(SYS_clock_gettime, clock, time) != 0) return -1;
    int64_t shift = 0;
    if (shifts && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift = shifts[0];
    if (shifts && clock == CLOCK_BOOTTIME) shift = shifts[1];
    int64_t total = (int64_t)time->tv_sec * SECOND + time->tv_nsec + shift;
    time->tv_sec = total / SECOND;
    time->tv_nsec = total % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
