// When the last message of the scheduler arrived at a worker, and for how long the scheduler has been silent: rules N5,
// N7 of docs/protocol.md. A plain value; one thread.
#pragma once

#include <string>

#include "core/error.h"
#include "core/job/job.h"
#include "core/listening.h"
#include "core/types.h"

namespace tarn::worker {

// In leases: the silence of the scheduler after which a client ends (rule N7), and the time after which a request that
// is rejected with transient errors fails (rule E7).
inline constexpr int kLeasesUntilLost = 2;

class SchedulerContact {
 public:
  // The worker begins to join: silence counts from now on.
  void Begin(TimeUs now) {
    last_message_ = now;
    listening_.Begin(now);
  }
  // The worker has joined.
  void OnWelcome(TimeUs lease_us) {
    joined_ = true;
    lease_us_ = lease_us;
  }
  // Notes that the worker is running. Call it at least once per lease.
  void Note(TimeUs now) { listening_.Note(now, lease_us_); }
  void OnMessage(TimeUs now) {
    last_message_ = now;
    answered_ = true;
  }

  TimeUs lease_us() const { return lease_us_; }
  // Whether a message of the scheduler has arrived.
  bool answered() const { return answered_; }
  // Time of the scheduler's last message; before the first one, of Begin.
  TimeUs last_message() const { return last_message_; }
  // How long the worker has received nothing while it was running.
  TimeUs Silence(TimeUs now) const { return listening_.Silence(last_message_, now, lease_us_); }
  // Whether the worker must pause (rule N5).
  bool Paused(TimeUs now) const { return now - last_message_ >= lease_us_; }
  // kUnavailable: the silence of a worker that has joined has reached kLeasesUntilLost leases (rule N7). `scheduler` is
  // its address, for the message.
  Status Check(TimeUs now, const std::string& scheduler) const;

 private:
  TimeUs last_message_ = 0;
  TimeUs lease_us_ = TimeUs(FleetSection().lease_seconds * 1e6);  // until the welcome: the default
  bool answered_ = false, joined_ = false;
  Listening listening_;
};

}  // namespace tarn::worker
