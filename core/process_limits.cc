#include "core/process_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace tarn {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Stack size of a thread if the system has no limit.
constexpr std::uint64_t kStackBytes = 8 * kMiB;

std::uint64_t Soft(__rlimit_resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

Status RequireFiles(std::uint64_t needed, std::string_view what, RaiseFiles raise) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return {};
  if (raise == RaiseFiles::kAsNeeded && files.rlim_cur >= needed) return {};
  const rlim_t allowed = files.rlim_max;
  files.rlim_cur = raise == RaiseFiles::kAsNeeded ? std::min<rlim_t>(allowed, needed) : allowed;
  setrlimit(RLIMIT_NOFILE, &files);  // may fail
  if (allowed >= needed) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("this process may open {} files (ulimit -Hn), expected at least {} for {}: raise the limit, "
                          "such as by ulimit -n {}, or use fewer of them",
                          allowed, needed, what, std::max<std::uint64_t>(1024, needed)));
}

std::uint64_t OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator it("/proc/self/fd", error);
  if (error) return error == std::errc::too_many_files_open ? Soft(RLIMIT_NOFILE) : 0;
  const auto seen = std::distance(std::filesystem::begin(it), std::filesystem::end(it));
  return static_cast<std::uint64_t>(seen) - 1;  // without the descriptor of this directory
}

Status RequireAddressSpace(std::uint64_t bytes, std::uint64_t threads, std::string_view what) {
  const std::uint64_t allowed = Soft(RLIMIT_AS), stack = Soft(RLIMIT_STACK);
  const std::uint64_t needed = bytes + threads * (stack == RLIM_INFINITY ? kStackBytes : stack);
  if (allowed == RLIM_INFINITY || allowed >= needed) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("this process may have {} MiB of address space (ulimit -v {}), expected at least {} MiB for "
                          "{}: raise the limit, such as by ulimit -v unlimited, or use fewer of them",
                          allowed / kMiB, allowed / 1024, (needed + kMiB - 1) / kMiB, what));
}

Error LimitError(std::string_view reason) {
  std::string limits;
  const auto add = [&](std::string_view name, __rlimit_resource resource, std::uint64_t unit) {
    const std::uint64_t value = Soft(resource);
    if (value != RLIM_INFINITY) limits += fmt::format("{}ulimit {} {}", limits.empty() ? "" : ", ", name, value / unit);
  };
  add("-v", RLIMIT_AS, 1024);
  add("-u", RLIMIT_NPROC, 1);
  add("-d", RLIMIT_DATA, 1024);
  return {ErrorCode::kIo,
          fmt::format("{}; limits of this process: {}; raise the one that is too low, or use fewer shards, "
                      "lanes or less storage.memory",
                      reason, limits.empty() ? "none, so the limit is that of the machine or its container" : limits)};
}

}  // namespace tarn
