// A library to preload into a server whose wall clock a test wants to set. How far it is off, in µs, is the
// int64 at the beginning of the file that SHIFT_FILE names; it may change at any time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("SHIFT_FILE");
  int file = name ? open(name, O_RDONLY) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) shift = page;
}

// The kernel is asked directly: this is called before anything is set up that could be looked up.
int clock_gettime(clockid_t id, struct timespec *ts) {
  int result = syscall(SYS_clock_gettime, id, ts);
  if (result == 0 && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    int64_t us = ts->tv_sec * INT64_C(1000000) + ts->tv_nsec / 1000 + *shift;
    ts->tv_nsec = us % 1000000 * 1000 + ts->tv_nsec % 1000;
    ts->tv_sec = us / 1000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  (void)zone;
  struct timespec ts;
  int result = clock_gettime(CLOCK_REALTIME, &ts);
  if (tv) {
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
  }
  return result;
}

time_t time(time_t *out) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (out) *out = ts.tv_sec;
  return ts.tv_sec;
}
