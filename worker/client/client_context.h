// State shared by the parts of worker::Client: its identity and state, the view, the outbox of the current step, and
// its counters. worker/client/README.md lists the parts. Internal to worker/. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"
#include "worker/client/byte_credit.h"
#include "worker/client/client.h"
#include "worker/client/scheduler_contact.h"

namespace tarn::worker {

inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();

// The consequence of a shard's error for the request.
enum class Refusal : std::uint8_t {
  kTransient,  // repeat the request, up to a time limit (rule E7)
  kFenced,
  kFinal,
};
Refusal RefusalOf(ErrorCode code);

struct ClientContext {
  explicit ClientContext(ClientOptions client_options) : options(std::move(client_options)) {}

  ClientOptions options;
  ClientState state = ClientState::kJoining;
  Shutdown stop_reason;
  bool was_stopped = false;  // a Shutdown has arrived
  std::uint64_t job = 0;     // fingerprint; 0 until welcome
  Job job_file;              // from the scheduler; default values until welcome
  Welcome welcome;
  View view;  // set by AdoptView
  // Time of the last message of each shard; nullopt: none has arrived from its endpoint.
  std::vector<std::optional<TimeUs>> shard_messages;
  std::map<TableId, TableSpec> tables;
  ClientCounters counters;
  std::vector<std::uint64_t> staleness;
  SchedulerContact scheduler;
  bool wants_heartbeat = false;  // the next Dispatch sends a heartbeat, which reports news or requests a newer view

  // The current step.
  TimeUs now = 0;
  Outbox* out = nullptr;

  bool running() const { return state == ClientState::kRunning; }
  bool paused() const { return scheduler.Paused(now); }
  TimeUs heartbeat_us() const {
    return std::max<TimeUs>(1'000, static_cast<TimeUs>(job_file.fleet.heartbeat_seconds * 1e6));
  }
  // Begins a step. There is at least one per heartbeat period, which is less than a lease.
  void Begin(TimeUs step) {
    now = step;
    scheduler.Note(now);
  }
  // Forgets the messages of shards whose endpoints differ from those of the previous view.
  void AdoptView(const View& next);
  // Records a transient rejection. Returns true if rejections have lasted too long (rule E7).
  bool GivesUp(RefusalTimer* timer) const {
    return timer->Refused(now, kLeasesUntilLost * scheduler.lease_us(), options.resend_us);
  }
  // "shard 3 has refused WHAT for 61.0 seconds: WHY"; without the seconds if `since`, the first rejection, is now.
  std::string RefusalText(ShardId shard, const std::string& what, const std::string& why, TimeUs since) const;
  // Whether pieces of these tables may share a message (rule W6).
  bool MayShare(TableId one, TableId other) const {
    return one != other && tables.at(one).consistency == tables.at(other).consistency;
  }
  // "table 'users'".
  std::string NameOf(TableId table) const;
  std::uint32_t shards() const { return static_cast<std::uint32_t>(view.routes.endpoints.size()); }
  ShardId OwnerOf(PartitionId partition) const { return tarn::OwnerOf(view.routes, partition); }

  // The upper bits of an id are the incarnation, so that answers to an earlier start of this process never match.
  RequestId NewRequest();
  bool IsOurs(RequestId request) const;

  void Send(Peer to, Body body, Buffer values = {});
  void SendToScheduler(Body body) { Send(kSchedulerPeer, std::move(body)); }
  void Stop(ErrorCode code, std::string reason);
  void CountStaleness(std::uint64_t clocks);

 private:
  std::uint64_t next_request_ = 1;
};

}  // namespace tarn::worker
