// The three kinds of errors of tarn (see CONTRIBUTING.md).
//
//   1. Programming errors: TARN_CHECK, also in release builds, never reachable from input bytes.
//   2. Errors in input from a peer, a file or a flag: Expected<T>. The message names the object, the value and what was
//      expected.
//   3. Errors of the environment (I/O error, disk full): the same type.
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
  kInvalidArgument,  // a flag, a value of the job file, or an argument
  kMalformed,        // invalid bytes from a peer or a file
  kTooLarge,         // exceeds a limit, such as one of core/limits.h, or this machine's memory
  kNotFound,         // a file, table or key does not exist
  kAlreadyExists,
  kStaleEpoch,   // the route epochs of sender and receiver differ
  kFenced,       // the sender's incarnation has ended
  kOutOfOrder,   // a push sequence above watermark + 1; SectionAck::expected is the expected one
  kWrongJob,     // another job or another protocol version
  kWrongShard,   // this shard does not own the key
  kOverloaded,   // cannot be accepted now, such as when a bounded queue is full; retry later
  kUnavailable,  // the peer has ended, cannot be reached or is not ready yet; or another process uses the resource
  kTimeout,
  kIo,       // I/O error, disk full; no memory (also of a GPU), file or thread left
  kCorrupt,  // stored data is damaged or inconsistent, such as bytes that do not match their checksum
  kUnsupported,
  kCancelled,
  kInternal,
  kUnknownKeys,  // the receiver does not have this key list: send the keys
  kDiverged,     // training has diverged: a loss is not finite
};

// The code's name in logs, such as "stale-epoch".
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

// Aborts with location and condition if the condition is false. Also in release builds.
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
