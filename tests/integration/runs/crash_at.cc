// A library for LD_PRELOAD: its process dies of SIGKILL at one of the calls by which it changes files.
//
//   TARN_TEST_CRASH=KIND:PATTERN:NUMBER:MOMENT   which call
//   TARN_TEST_CRASH_TOLD=FILE                    a line "KIND PATH" is added to FILE just before the process dies
//
// KIND is create (an open that may make the file), write, sync, allocate, truncate, rename, link or remove. PATTERN is
// an extended pattern of fnmatch(3) for the whole path, of rename and link for the new path. NUMBER counts the matching
// calls of the process, from 1. MOMENT is before, after or, of a write, half: after the first half of its bytes is
// written. Calls by RocksDB and libstdc++ are intercepted, too, but not those within the C library (stdio).
//
// KIND may be a pattern, too. With NUMBER 0 the process does not die, and a line is written for each matching call:
// "*:*:0:before" lists the calls of a program.
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Plan {
  std::string kind, pattern, moment, told;
  long number = -1;  // none
  std::atomic<long> calls = 0;

  Plan() {
    const char* text = std::getenv("TARN_TEST_CRASH");
    const char* file = std::getenv("TARN_TEST_CRASH_TOLD");
    if (text == nullptr || file == nullptr) return;
    told = file;
    std::vector<std::string> parts(1);
    for (; *text != '\0'; ++text) *text == ':' ? (void)parts.emplace_back() : parts.back().push_back(*text);
    if (parts.size() != 4) std::abort();  // a test's mistake
    kind = parts[0];
    pattern = parts[1];
    number = std::atol(parts[2].c_str());
    moment = parts[3];
  }
};

Plan& ThePlan() {
  static Plan plan;
  return plan;
}

// The file that a call changes.
struct Target {
  explicit Target(std::string name) : path(std::move(name)) {}
  Target(int folder, const char* name) : path(name) {
    if (path[0] != '/' && folder != AT_FDCWD) path = Target(folder).path + "/" + path;
  }
  explicit Target(int fd) : path(PATH_MAX, '\0') {
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t bytes = ::readlink(link.c_str(), path.data(), path.size());
    path.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  }
  std::string path;
};

// Uses raw system calls, because this library replaces the functions of the C library.
void Tell(const Plan& plan, const char* kind, const Target& target) {
  const std::string line = std::string(kind) + " " + target.path + "\n";
  const long fd = ::syscall(SYS_openat, AT_FDCWD, plan.told.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || ::syscall(SYS_write, fd, line.data(), line.size()) < 0) std::abort();
  ::syscall(SYS_close, fd);
}

[[noreturn]] void Die(const Plan& plan, const char* kind, const Target& target) {
  Tell(plan, kind, target);
  for (;;) ::kill(::getpid(), SIGKILL);
}

// Makes the call with `whole`, or dies before it, after it, or after `half`, which makes half of the call.
template <class MakeTarget, class Whole, class Half>
auto Around(const char* kind, MakeTarget make_target, Whole whole, Half half) {
  Plan& plan = ThePlan();
  if (plan.number < 0 || ::fnmatch(plan.kind.c_str(), kind, FNM_EXTMATCH) != 0) return whole();
  const int error = errno;
  const Target target = make_target();
  errno = error;
  if (::fnmatch(plan.pattern.c_str(), target.path.c_str(), FNM_EXTMATCH) != 0) return whole();
  if (plan.number == 0) Tell(plan, kind, target);
  if (++plan.calls != plan.number) return whole();
  if (plan.moment == "half") half();
  if (plan.moment == "after") whole();
  Die(plan, kind, target);
}

template <class MakeTarget, class Whole>
auto Around(const char* kind, MakeTarget make_target, Whole whole) {
  return Around(kind, make_target, whole, [] { std::abort(); });
}

template <class Function>
Function Next(Function, const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::vector<iovec> FirstHalf(std::span<const iovec> parts) {
  std::size_t left = 0;
  for (const iovec& part : parts) left += part.iov_len;
  left /= 2;
  std::vector<iovec> half;
  for (const iovec& part : parts) {
    half.push_back({part.iov_base, std::min(part.iov_len, left)});
    left -= half.back().iov_len;
  }
  return half;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto next = Next(&::open, "open");
  const bool nameless = (flags & O_TMPFILE) == O_TMPFILE, may_create = nameless || (flags & O_CREAT) != 0;
  mode_t mode = 0;
  if (may_create) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  const auto whole = [&] { return next(path, flags, mode); };
  if (!may_create) return whole();
  return Around("create", [&] { return nameless ? Target(std::string(path) + "/#") : Target(path); }, whole);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  static const auto next = Next(&::write, "write");
  return Around(
      "write", [&] { return Target(fd); }, [&] { return next(fd, bytes, size); },
      [&] { return next(fd, bytes, size / 2); });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  static const auto next = Next(&::pwrite, "pwrite");
  return Around(
      "write", [&] { return Target(fd); }, [&] { return next(fd, bytes, size, at); },
      [&] {
        if (next(fd, bytes, size / 2, at) >= 0) return;
        // Direct I/O writes whole pages only: writes the half through the page cache.
        const std::string file = "/proc/self/fd/" + std::to_string(fd);
        const long cached = ::syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CLOEXEC);
        if (next(static_cast<int>(cached), bytes, size / 2, at) < 0) std::abort();
      });
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  static const auto next = Next(&::pwritev, "pwritev");
  return Around(
      "write", [&] { return Target(fd); }, [&] { return next(fd, parts, count, at); },
      [&] { return next(fd, FirstHalf(std::span(parts, static_cast<std::size_t>(count))).data(), count, at); });
}

int fsync(int fd) {
  static const auto next = Next(&::fsync, "fsync");
  return Around("sync", [&] { return Target(fd); }, [&] { return next(fd); });
}

int fdatasync(int fd) {
  static const auto next = Next(&::fdatasync, "fdatasync");
  return Around("sync", [&] { return Target(fd); }, [&] { return next(fd); });
}

int fallocate(int fd, int mode, off_t at, off_t bytes) {
  static const auto next = Next(&::fallocate, "fallocate");
  return Around("allocate", [&] { return Target(fd); }, [&] { return next(fd, mode, at, bytes); });
}

int ftruncate(int fd, off_t bytes) noexcept {
  static const auto next = Next(&::ftruncate, "ftruncate");
  return Around("truncate", [&] { return Target(fd); }, [&] { return next(fd, bytes); });
}

int rename(const char* from, const char* to) noexcept {
  static const auto next = Next(&::rename, "rename");
  return Around("rename", [&] { return Target(to); }, [&] { return next(from, to); });
}

int link(const char* from, const char* to) noexcept {
  static const auto next = Next(&::link, "link");
  return Around("link", [&] { return Target(to); }, [&] { return next(from, to); });
}

int linkat(int from_folder, const char* from, int folder, const char* to, int flags) noexcept {
  static const auto next = Next(&::linkat, "linkat");
  return Around("link", [&] { return Target(folder, to); }, [&] { return next(from_folder, from, folder, to, flags); });
}

int unlink(const char* path) noexcept {
  static const auto next = Next(&::unlink, "unlink");
  return Around("remove", [&] { return Target(path); }, [&] { return next(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto next = Next(&::unlinkat, "unlinkat");
  return Around("remove", [&] { return Target(folder, path); }, [&] { return next(folder, path, flags); });
}

int remove(const char* path) noexcept {
  static const auto next = Next(&::remove, "remove");
  return Around("remove", [&] { return Target(path); }, [&] { return next(path); });
}

}  // extern "C"
