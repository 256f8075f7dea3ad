// A library for LD_PRELOAD that delays one open by TARN_TEST_SLOW_SECONDS: the first that opens, only to read it, a
// file whose path matches TARN_TEST_SLOW_OPEN (an extended pattern of fnmatch(3)). Creates the file TARN_TEST_SLOW_MARK
// at the beginning of the delay.
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>

namespace {

using Open = int(const char*, int, ...);

void MayWait(const char* path, int flags) {
  static std::atomic_flag waited;
  const char* pattern = std::getenv("TARN_TEST_SLOW_OPEN");
  const char* seconds = std::getenv("TARN_TEST_SLOW_SECONDS");
  if (pattern == nullptr || seconds == nullptr || (flags & O_ACCMODE) != O_RDONLY) return;
  if (fnmatch(pattern, path, FNM_EXTMATCH) != 0 || waited.test_and_set()) return;
  if (const char* mark = std::getenv("TARN_TEST_SLOW_MARK"); mark != nullptr) close(creat(mark, 0600));
  usleep(static_cast<useconds_t>(std::atof(seconds) * 1e6));
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : mode_t{0};
  va_end(rest);
  MayWait(path, flags);
  return reinterpret_cast<Open*>(dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}

// The same call on 64-bit Linux.
extern "C" int open64(const char* path, int flags, ...) __attribute__((alias("open")));
