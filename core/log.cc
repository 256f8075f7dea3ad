#include "core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

namespace tarn {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

constexpr char kLoggerName[] = "tarn";

// The logger that InitLog made; null before. spdlog stores it as the process's default logger; before InitLog that is
// spdlog's own, which writes to stdout.
spdlog::logger* Current() {
  spdlog::logger* logger = spdlog::default_logger_raw();
  return logger != nullptr && logger->name() == kLoggerName ? logger : nullptr;
}

// '%' starts a directive in spdlog's patterns.
std::string EscapePercent(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

}  // namespace

Status InitLog(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  try {
    if (!options.path.empty()) sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.path));
    if (options.also_stderr) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    auto logger = std::make_shared<spdlog::logger>(kLoggerName, sinks.begin(), sinks.end());
    logger->set_level(ToSpdlog(options.level));
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L " + EscapePercent(options.role) + " | %v",
                        spdlog::pattern_time_type::utc);
    logger->flush_on(spdlog::level::warn);
    spdlog::set_default_logger(std::move(logger));
    spdlog::flush_every(std::chrono::seconds(1));
  } catch (const spdlog::spdlog_ex& e) {
    return Fail(ErrorCode::kIo, fmt::format("log {}: {}", options.path, e.what()));
  }
  return {};
}

void FlushLog() {
  if (auto* logger = Current()) logger->flush();
}

bool LogEnabled(LogLevel level) {
  const auto* logger = Current();
  return logger != nullptr ? logger->should_log(ToSpdlog(level)) : level >= LogLevel::kWarning;
}

void Log(LogLevel level, std::string_view message) {
  if (auto* logger = Current()) {
    logger->log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
  } else if (LogEnabled(level)) {
    std::fprintf(stderr, "tarn: %.*s\n", int(message.size()), message.data());
  }
}

void LogAndPrint(LogLevel level, std::string_view program, std::string_view message) {
  const auto* logger = Current();
  const auto is_stderr = [](const spdlog::sink_ptr& sink) {
    return dynamic_cast<const spdlog::sinks::stderr_sink_mt*>(sink.get()) != nullptr;
  };
  const bool skips_stderr =
      logger == nullptr ? !LogEnabled(level) : std::any_of(logger->sinks().begin(), logger->sinks().end(), is_stderr);
  if (!skips_stderr)
    std::fprintf(stderr, "%.*s: %.*s\n", int(program.size()), program.data(), int(message.size()), message.data());
  if (logger != nullptr) Log(level, message);  // last, because the log's disk may stall
}

bool LogLimiter::Allow(TimeUs now, std::uint64_t& suppressed) {
  TimeUs next = next_.load(std::memory_order_relaxed);
  if (now < next || !next_.compare_exchange_strong(next, now + kPeriodUs, std::memory_order_relaxed)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace tarn
