/* A clock that jumps, for all programs of one container: LD_PRELOAD. The jump is a signed number of
 * seconds, a machine word in the file that DSHPC_TEST_CLOCK names; it may change while programs run.
 * Times of files are the kernel's and do not jump. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t none = 0;
static volatile const int64_t *jump = &none;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_sem_timedwait)(sem_t *, const struct timespec *);

static void *found(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DSHPC_TEST_CLOCK");
    real_clock_gettime = found("clock_gettime");
    /* without its version dlsym gives the one of very old programs */
    real_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    real_sem_timedwait = found("sem_timedwait");
    if (path) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            void *map = mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
            close(file);
            if (map != MAP_FAILED)
                jump = map;
        }
    }
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (!real_clock_gettime)
        begin();
    int result = real_clock_gettime(clock, at);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *jump;
    return result;
}

time_t time(time_t *to)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to)
        *to = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *to, void *zone)
{
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    to->tv_sec = at.tv_sec;
    to->tv_usec = at.tv_nsec / 1000;
    return 0;
}

/* What is waited for is a time of the clock that jumps. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *at)
{
    struct timespec until = *at;
    until.tv_sec -= *jump;
    return real_timedwait(cond, mutex, &until);
}

int sem_timedwait(sem_t *sem, const struct timespec *at)
{
    struct timespec until = *at;
    until.tv_sec -= *jump;
    return real_sem_timedwait(sem, &until);
}
