#include "server/scheduler_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"

namespace tarn::server {

Status SchedulerWatch::Check(TimeUs now, TimeUs heard, TimeUs lease_us, bool joined) {
  listening_.Note(now, lease_us);
  const TimeUs silence = listening_.Silence(heard, now, lease_us);
  return joined ? CheckJoined(static_cast<double>(silence) * 1e-6, lease_us) : CheckJoining(silence);
}

Status SchedulerWatch::CheckJoined(double silent_seconds, TimeUs lease_us) const {
  if (silent_seconds <= 2e-6 * static_cast<double>(lease_us)) return {};
  return Fail(ErrorCode::kUnavailable,
              fmt::format("shard {}: the scheduler at {} was not heard for {:.0f} s", ShardOf(options_, index_).value,
                          options_.scheduler, silent_seconds));
}

Status SchedulerWatch::CheckJoining(TimeUs silence) {
  const double silent = static_cast<double>(silence) * 1e-6;
  if (index_ == 0 && notes_.IsDue(silence))
    LogAndPrint(
        LogLevel::kWarning, kProgram,
        fmt::format(
            "server {}: has waited {:.0f} s for a welcome from the scheduler at {}, which comes once it runs and "
            "all servers and workers have joined (is that its address, {}?); gives up in {:.0f} s",
            options_.rank.value, silent, options_.scheduler, kSameKeys, std::max(0.0, options_.join_seconds - silent)));
  if (silent <= options_.join_seconds) return {};
  return Fail(
      ErrorCode::kUnavailable,
      fmt::format(
          "shard {}: no welcome from the scheduler at {} for {:.0f} s: is it running, is that its address, {}, and "
          "have all servers and workers started? The scheduler's log names those that are missing; "
          "--join-seconds lets a server wait longer",
          ShardOf(options_, index_).value, options_.scheduler, silent, kSameKeys));
}

}  // namespace tarn::server
