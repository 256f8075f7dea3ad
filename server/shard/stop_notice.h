// Whether a shard has stopped, and why. A shard that stops by itself sends the reason to the scheduler and repeats it
// every second, until the scheduler answers with Shutdown, or a lease and three regular sends have passed (rule S2).
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/message.h"
#include "server/shard/shard_step.h"

namespace tarn::server {

class StopNotice {
 public:
  // `step` outlives it.
  explicit StopNotice(ShardStep* step) : step_(step) {}

  // Stops the shard. Only the first reason counts.
  void Stop(ErrorCode code, std::string reason);
  // The same, with the shard's name added to the message.
  void Stop(const Error& error);
  // The scheduler has sent Shutdown: confirms it and ends the shard (rule S1). The reason of `shutdown` counts unless
  // the shard has already stopped.
  void OnShutdown(const Shutdown& shutdown);

  // Records the first error after which the current step cannot be completed, because rows on disk cannot be read or
  // written. Returns whether `status` is ok.
  bool Check(const Status& status) {
    if (!status && failure_) failure_ = status;
    return status.has_value();
  }
  bool step_failed() const { return !failure_.has_value(); }
  // Returns the recorded error and clears it.
  Status TakeFailure() { return std::exchange(failure_, Status()); }

  // For a shard that has stopped: repeats the reason when it is due, or ends the shard after a lease and three regular
  // sends.
  void OnTimer(TimeUs lease_us);
  TimeUs NextTimer(TimeUs lease_us) const;

  bool stopped() const { return stopped_; }
  // The shard has stopped, and the scheduler has confirmed it or could not be reached.
  bool ended() const { return ended_; }
  const Shutdown& reason() const { return reason_; }

 private:
  void SendReason();

  ShardStep* step_;
  bool stopped_ = false;
  bool ended_ = false;
  Shutdown reason_;
  TimeUs stopped_at_ = 0;
  TimeUs next_send_ = 0;
  std::uint32_t sent_in_time_ = 0;
  Status failure_;
};

}  // namespace tarn::server
