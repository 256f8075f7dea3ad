#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace tarn {

std::string_view ErrorName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk: return "ok";
    case ErrorCode::kInvalidArgument: return "invalid-argument";
    case ErrorCode::kMalformed: return "malformed";
    case ErrorCode::kTooLarge: return "too-large";
    case ErrorCode::kNotFound: return "not-found";
    case ErrorCode::kAlreadyExists: return "already-exists";
    case ErrorCode::kStaleEpoch: return "stale-epoch";
    case ErrorCode::kFenced: return "fenced";
    case ErrorCode::kOutOfOrder: return "out-of-order";
    case ErrorCode::kWrongJob: return "wrong-job";
    case ErrorCode::kWrongShard: return "wrong-shard";
    case ErrorCode::kOverloaded: return "overloaded";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
    case ErrorCode::kUnknownKeys: return "unknown-keys";
    case ErrorCode::kDiverged: return "diverged";
  }
  return "unknown";
}

std::string ToString(const Error& error) { return std::string(ErrorName(error.code)) + ": " + error.message; }

namespace internal {

void CheckFailed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "tarn: check failed at %s:%d: %s (%s)\n", file, line, condition, why);
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal
}  // namespace tarn
