// Errors of tarn: three kinds, three answers (see CONTRIBUTING.md).
//
//   1. A programmer's error: TARN_CHECK, on in release, never reachable from input bytes.
//   2. Anything from a peer, a file or a flag: Expected<T> with a message that says what, which, expected.
//   3. The environment (I/O error, disk full): the same type.
//
//   Expected<Job> LoadJob(const std::string& path);
//   auto job = LoadJob(path);
//   if (!job) return std::unexpected(job.error());
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace tarn {

enum class ErrorCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument,  // a flag, a job-file value, a caller's value
  kMalformed,        // bytes from a peer or a file that do not parse
  kTooLarge,         // over a named limit of core/limits.h
  kNotFound,         // a file, a table, a key that must exist
  kAlreadyExists,
  kStaleEpoch,   // the sender's route map is older than the receiver's
  kFenced,       // the sender's incarnation is over
  kOutOfOrder,   // a push beyond watermark + 1; the error names the sequence expected
  kWrongJob,     // another job or another protocol version
  kWrongShard,   // a key that this shard does not own
  kOverloaded,   // a bounded queue is full; try again later
  kUnavailable,  // the peer is gone or not reachable
  kTimeout,
  kIo,       // the environment: I/O error, disk full, no memory
  kCorrupt,  // stored bytes that fail their checksum
  kUnsupported,
  kCancelled,
  kInternal,
  kUnknownKeys,  // a list of keys that the receiver does not hold: send the keys
  kDiverged,     // training has diverged: a loss that is not a finite number
};

// The code's name as logs print it, such as "stale-epoch".
std::string_view ErrorName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
using Expected = std::expected<T, Error>;
using Status = std::expected<void, Error>;

// Shorthand: `return Fail(ErrorCode::kNotFound, "table 'users': not in the job");`
[[nodiscard]] inline std::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

// "not-found: table 'users': not in the job".
std::string ToString(const Error& error);

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const char* why);
}  // namespace internal

// Aborts with place and condition when a programmer's assumption does not hold. Stays on in release.
#define TARN_CHECK(condition, why)                                        \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::tarn::internal::CheckFailed(__FILE__, __LINE__, #condition, why); \
  } while (false)

// Evaluates `expr` (a Status or Expected); returns its error from the enclosing function if it has one.
#define TARN_RETURN_IF_ERROR(expr)                              \
  do {                                                          \
    if (auto tarn_status_ = (expr); !tarn_status_) [[unlikely]] \
      return std::unexpected(std::move(tarn_status_).error());  \
  } while (false)

}  // namespace tarn
