/* Preloaded into a broker: the wall clock reads as many seconds off as the file CLOCK_OFFSET_FILE
   says at that moment. The monotonic clock is left alone, as a real jump leaves it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(id, now);
  const char *path = getenv("CLOCK_OFFSET_FILE");
  FILE *file = failed || id != CLOCK_REALTIME || !path ? NULL : fopen(path, "r");
  long seconds = 0;
  if (file) {
    if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
    fclose(file);
  }
  return failed;
}
