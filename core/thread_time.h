// CPU time of the calling thread, in seconds.
#pragma once

#include <time.h>

namespace tarn {

inline double ThreadCpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
}

}  // namespace tarn
