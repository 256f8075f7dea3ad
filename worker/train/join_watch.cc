#include "worker/train/join_watch.h"

#include <fmt/format.h>

#include "core/listening.h"
#include "core/log.h"
#include "worker/train/trainer.h"

namespace tarn::worker {

Status JoinWatch::Check(TimeUs silence) {
  const double seconds = double(silence) * 1e-6;
  if (seconds <= seconds_max_ && notes_.IsDue(silence))
    LogAndPrint(
        LogLevel::kWarning, kProgram,
        fmt::format("the scheduler at {} has been silent for {:.0f} s (is it running, is that its address, {}?); "
                    "this worker gives up in {:.0f} s",
                    scheduler_, seconds, kSameKeys, seconds_max_ - seconds));
  if (seconds <= seconds_max_) return {};
  return Fail(
      ErrorCode::kUnavailable,
      fmt::format("the scheduler at {} has been silent for {:.0f} seconds: is it running, is that its address, {}?",
                  scheduler_, seconds, kSameKeys));
}

}  // namespace tarn::worker
