// The log of a process: one line per event, "2026-01-31 12:00:00.123 I server-0 | text", in UTC. For loops and
// programs; state machines do not log. All functions may be called from any thread. Call InitLog first, before other
// threads start.
//
//   InitLog({.role = "server-0", .path = run_dir + "/logs/server-0.log", .also_stderr = true});
//   LogInfo("serving {} partitions on {}", count, endpoint);
//   LogWarning(bad_frame_limiter, "frame of {} bytes from {} does not verify", bytes, peer);  // at most once a second
//
// Before InitLog, warnings and errors are written to stderr, and other lines are dropped.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/types.h"

namespace tarn {

enum class LogLevel : std::uint8_t { kInfo, kWarning, kError };

struct LogOptions {
  std::string role;  // name of the process: "scheduler", "server-0", "worker-3"
  std::string path;  // the file to append to; its directory is created; empty: no file
  bool also_stderr = false;
  LogLevel level = LogLevel::kInfo;  // lines below it are dropped
};

// Opens the log; a second call replaces the log of the first. kIo if the file cannot be opened.
Status InitLog(const LogOptions& options);

// Writes all lines to the file. Without it, warnings and errors are written at once, other lines within a second.
void FlushLog();

// Period of log lines about waits.
inline constexpr TimeUs kWaitNotePeriodUs = 10'000'000;

// Whether lines of this level are written.
bool LogEnabled(LogLevel level);
// Logs the message, and also writes "PROGRAM: MESSAGE" to stderr for the user, unless the log goes there.
void LogAndPrint(LogLevel level, std::string_view program, std::string_view message);
void Log(LogLevel level, std::string_view message);

template <typename... Args>
void LogAt(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) Log(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kError, format, std::forward<Args>(args)...);
}

// Allows one event per second and counts the others. Use a separate limiter for each line that may be logged too often.
// Any thread.
class LogLimiter {
 public:
  static constexpr TimeUs kPeriodUs = 1'000'000;

  // Whether an event at `now` may be logged. If so, `suppressed` is the number of events suppressed since the last one
  // logged.
  bool Allow(TimeUs now, std::uint64_t& suppressed);

 private:
  std::atomic<TimeUs> next_{INT64_MIN};
  std::atomic<std::uint64_t> suppressed_{0};
};

// Like LogAt, but at most once a second. The line ends with "(12 more like this suppressed)" if lines were suppressed.
template <typename... Args>
void LogAt(LogLevel level, LogLimiter& limiter, fmt::format_string<Args...> format, Args&&... args) {
  if (!LogEnabled(level)) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::uint64_t suppressed = 0;
  if (!limiter.Allow(std::chrono::duration_cast<std::chrono::microseconds>(now).count(), suppressed)) return;
  std::string line = fmt::format(format, std::forward<Args>(args)...);
  if (suppressed != 0) line += fmt::format(" ({} more like this suppressed)", suppressed);
  Log(level, line);
}
template <typename... Args>
void LogWarning(LogLimiter& limiter, fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kWarning, limiter, format, std::forward<Args>(args)...);
}

}  // namespace tarn
