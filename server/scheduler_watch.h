// Watches for silence of the scheduler: until the shard has joined, logs what the shard waits for; fails when the
// silence is too long (rule N7). One thread.
#pragma once

#include "core/error.h"
#include "core/listening.h"
#include "core/types.h"
#include "core/wait_notes.h"
#include "server/loop.h"

namespace tarn::server {

class SchedulerWatch {
 public:
  // `options` outlives the watch. `index` of the shard in its server: only shard 0 logs, because all shards of a server
  // wait for the same scheduler.
  SchedulerWatch(const ServerOptions& options, std::uint32_t index) : options_(options), index_(index) {}

  void Begin(TimeUs now) { listening_.Begin(now); }
  // Call it in every turn of the shard's loop. `heard`: time of the scheduler's last message. kUnavailable: the silence
  // is longer than 2 x lease_seconds or, before the shard has joined, than options.join_seconds. Pauses of this process
  // do not count.
  Status Check(TimeUs now, TimeUs heard, TimeUs lease_us, bool joined);

 private:
  Status CheckJoined(double silent_seconds, TimeUs lease_us) const;
  Status CheckJoining(TimeUs silence);

  const ServerOptions& options_;
  std::uint32_t index_;
  Listening listening_;
  WaitNotes notes_;
};

}  // namespace tarn::server
