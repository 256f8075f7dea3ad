// A library for LD_PRELOAD that simulates a disk that is full for a while, that stalls, or whose file system
// cannot reserve space.
//
//   TARN_TEST_FULL=PATTERN:NUMBER         the first NUMBER calls that create a matching file fail with ENOSPC
//   TARN_TEST_SCARCE=PATTERN:BYTES        reserving more than BYTES beyond a matching file's end fails with ENOSPC
//   TARN_TEST_UNRESERVED=PATTERN          reserving space for a matching file fails with EOPNOTSUPP
//   TARN_TEST_STALL=PATTERN:SKIP:SECONDS  the sync of a matching file after the first SKIP ones takes SECONDS more
//
// PATTERN is a pattern of fnmatch(3) for the whole path; the path of a file without a name (O_TMPFILE) is
// "FOLDER/#NUMBER (deleted)".
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

// The parts of an environment variable, separated by colons; empty if it is not set.
std::vector<std::string> Parts(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return {};
  std::vector<std::string> parts(1);
  for (; *text != '\0'; ++text) *text == ':' ? (void)parts.emplace_back() : parts.back().push_back(*text);
  return parts;
}

bool IsFullFor(const char* path, int flags) {
  static const std::vector<std::string> kPlan = Parts("TARN_TEST_FULL");
  static std::atomic<int> refused = 0;
  if (kPlan.size() != 2 || (flags & O_CREAT) == 0 || fnmatch(kPlan[0].c_str(), path, 0) != 0) return false;
  return refused++ < std::atoi(kPlan[1].c_str());
}

std::string PathOf(int fd) {
  std::string path(PATH_MAX, '\0');
  const ssize_t bytes = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  path.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  return path;
}

bool IsScarceFor(int fd, off_t offset, off_t length) {
  static const std::vector<std::string> kPlan = Parts("TARN_TEST_SCARCE");
  if (kPlan.size() != 2 || fnmatch(kPlan[0].c_str(), PathOf(fd).c_str(), 0) != 0) return false;
  struct stat about{};
  return ::fstat(fd, &about) == 0 && offset + length > about.st_size + std::atoll(kPlan[1].c_str());
}

using Open = int(const char*, int, ...);

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : mode_t{0};
  va_end(rest);
  if (IsFullFor(path, flags)) {
    errno = ENOSPC;
    return -1;
  }
  return reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}

// The same call on 64-bit Linux.
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int fallocate(int fd, int mode, off_t offset, off_t length) {
  static const std::vector<std::string> kUnreserved = Parts("TARN_TEST_UNRESERVED");
  if (!kUnreserved.empty() && fnmatch(kUnreserved[0].c_str(), PathOf(fd).c_str(), 0) == 0) {
    errno = EOPNOTSUPP;
    return -1;
  }
  if (IsScarceFor(fd, offset, length)) {
    errno = ENOSPC;
    return -1;
  }
  return reinterpret_cast<int (*)(int, int, off_t, off_t)>(::dlsym(RTLD_NEXT, "fallocate"))(fd, mode, offset, length);
}

int fallocate64(int fd, int mode, off_t offset, off_t length) __attribute__((alias("fallocate")));

int fsync(int fd) {
  static const std::vector<std::string> kPlan = Parts("TARN_TEST_STALL");
  static std::atomic<int> synced = 0;
  if (kPlan.size() == 3 && fnmatch(kPlan[0].c_str(), PathOf(fd).c_str(), 0) == 0 &&
      synced++ == std::atoi(kPlan[1].c_str()))
    ::usleep(static_cast<useconds_t>(std::atof(kPlan[2].c_str()) * 1e6));
  return reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "fsync"))(fd);
}

}  // extern "C"
