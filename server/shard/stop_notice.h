// Whether a shard has stopped, and why. A shard that stops by itself sends the reason to the scheduler and repeats it
// every second, until the scheduler answers with Shutdown or a lease has passed (rule S2). Not thread-safe.
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

  // The shard stops by itself. The first reason counts.
  void Stop(ErrorCode code, std::string reason);
  // The same; the message gets the shard's name.
  void Stop(const Error& error);
  // The scheduler has sent Shutdown: the shard confirms it and has ended (rule S1). Its reason counts unless the shard
  // has stopped already.
  void OnShutdown(const Shutdown& shutdown);

  // If `status` is an error, the current step cannot be finished: rows on disk cannot be read or written. Keeps the
  // first such error. Returns whether `status` is no error.
  bool Check(const Status& status) {
    if (!status && failure_) failure_ = status;
    return status.has_value();
  }
  bool step_failed() const { return !failure_.has_value(); }
  // Returns that error and clears it.
  Status TakeFailure() { return std::exchange(failure_, Status()); }

  // For a shard that has stopped: repeats the reason when it is due, or has ended.
  void OnTimer(TimeUs lease_us);
  TimeUs NextTimer(TimeUs lease_us) const;

  bool stopped() const { return stopped_; }
  // Stopped, and the scheduler knows it, or could not be reached.
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
