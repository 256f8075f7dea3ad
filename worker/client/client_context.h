// What the parts of worker::Client share: its identity and state, the view, the way out of the step in progress, and
// what it counts. worker/client/README.md lists the parts. Internal to worker/. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/listening.h"
#include "core/message.h"
#include "worker/client/byte_credit.h"
#include "worker/client/client.h"

namespace tarn::worker {

inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();

// What a shard's refusal means for the request.
enum class Refusal : std::uint8_t {
  kTransient,  // repeated until it passes, or for too long (rule E7)
  kFenced,
  kFinal,
};
Refusal RefusalOf(ErrorCode code);

struct ClientContext {
  explicit ClientContext(ClientOptions client_options) : options(client_options) {}

  ClientOptions options;
  ClientState state = ClientState::kJoining;
  Shutdown stop_reason;
  std::uint64_t job = 0;  // fingerprint; 0 until welcome
  Job job_file;           // as the scheduler sent it; its defaults until welcome
  Welcome welcome;
  View view;
  std::map<TableId, TableSpec> tables;
  ClientCounters counters;
  std::vector<std::uint64_t> staleness;
  struct {
    TimeUs heard = 0;  // last
    Listening listening;
  } scheduler;
  bool wants_heartbeat = false;  // for news that the scheduler should not wait for

  // Of the step in progress.
  TimeUs now = 0;
  Outbox* out = nullptr;

  bool running() const { return state == ClientState::kRunning; }
  bool paused() const { return now - scheduler.heard >= lease_us(); }  // rule N5
  TimeUs lease_us() const { return static_cast<TimeUs>(job_file.fleet.lease_seconds * 1e6); }
  TimeUs heartbeat_us() const {
    return std::max<TimeUs>(1'000, static_cast<TimeUs>(job_file.fleet.heartbeat_seconds * 1e6));
  }
  // A step is about to be taken: there is one for each heartbeat at least, which are less than a lease apart.
  void Begin(TimeUs step) {
    now = step;
    scheduler.listening.Note(now, lease_us());
  }
  // Counts a refusal that may pass. True: it has lasted for so long that it will not (rule E7).
  bool GivesUp(RefusalTimer* timer) const {
    return timer->Refused(now, kLeasesUntilLost * lease_us(), options.resend_us);
  }
  // "shard 3 has refused WHAT for 61 seconds: WHY", or without the time if that is 0.
  std::string RefusalText(ShardId shard, const std::string& what, const std::string& why, TimeUs since) const;
  // "table 'users'".
  std::string NameOf(TableId table) const;
  std::uint32_t shards() const { return static_cast<std::uint32_t>(view.routes.endpoints.size()); }
  ShardId OwnerOf(PartitionId partition) const { return tarn::OwnerOf(view.routes, partition); }

  // Ids carry the incarnation in their upper bits, so that an answer meant for an older start is never taken for one
  // of ours.
  RequestId NewRequest();
  bool IsOurs(RequestId request) const;

  void Send(Peer to, Body body, Buffer keys = {}, Buffer values = {});
  void SendToScheduler(Body body) { Send(kSchedulerPeer, std::move(body)); }
  void Stop(ErrorCode code, std::string reason);
  void CountStaleness(std::uint64_t clocks);

 private:
  std::uint64_t next_request_ = 1;
};

}  // namespace tarn::worker
