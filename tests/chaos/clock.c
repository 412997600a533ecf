/* A clock that is CHAOS_CLOCK_AHEAD_S seconds ahead, for processes that load this library first.
 *
 * It answers those who ask for the time of day. Waits, the monotonic clock and the times of files stay as they are, as on
 * a host whose clock was set wrongly; libfaketime also touches waits, and Java and Python 3.11 do not survive that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead_s(void) {
    const char *set = getenv("CHAOS_CLOCK_AHEAD_S");
    return set == NULL ? 0 : atol(set);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    static long ahead;
    if (next == NULL) {
        ahead = ahead_s();
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int failed = next(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    (void)zone;
    if (!failed) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *also) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (also != NULL) *also = exact.tv_sec;
    return exact.tv_sec;
}
