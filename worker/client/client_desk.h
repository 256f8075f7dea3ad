// What the rooms of worker::Client share: who we are, the view, the way out, and what goes back to the caller.
//
//   client_pieces    cuts a plan into messages
//   key_lists        lists of keys that shards hold (rules W3, W4)
//   client_sender    byte credits of one direction to one shard, and pauses between repeats
//   client_pushes    numbers pushes and repeats them until acknowledged (rules E1-E6)
//   client_pulls     asks for rows and puts the answers together (rules C3, C4)
//   client_cache     rows that were pulled and may be read again (rules H1 to H5)
//   push_combiner    pushes of several clocks that travel as one (rules H6 to H8)
//   client_ticks     orders ticks behind pushes; proposals and checkpoints (rules C1, C5, M1, K1)
//   client_blob      the worker's own state in checkpoints (rules K9, K10)
//   client_control   everything that is asked of the scheduler (rules N1, N3, N5)
//
// Internal to worker/. One thread owns it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/listening.h"
#include "core/message.h"
#include "worker/client/client.h"
#include "worker/client/client_sender.h"
#include "worker/client/key_lists.h"

namespace tarn::worker {

inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();

// What a refusal means for the request.
enum class Verdict : std::uint8_t { kRetry, kFenced, kFatal };
Verdict Judge(ErrorCode code);

struct ClientDesk {
  explicit ClientDesk(ClientOptions client_options) : options(client_options) {}

  ClientOptions options;
  ClientState state = ClientState::kJoining;
  Shutdown stop_reason;
  std::uint64_t job = 0;  // fingerprint; 0 until welcome
  Job job_file;           // as the scheduler sent it
  TimeUs heartbeat_us = 1'000'000;
  TimeUs busy_poll_us = 0;
  TimeUs lease_us = 30'000'000;
  Welcome welcome;
  View view;
  std::map<TableId, TableSpec> tables;
  std::vector<ClientEvent> events;
  Client::Counters counters;
  std::vector<std::uint64_t> staleness;
  KeyLists lists{options.held_keys_min, options.held_keys_bytes};
  TimeUs heard = 0;              // the scheduler, last
  Listening listening;           // to it
  bool wants_heartbeat = false;  // something the scheduler should hear of at once

  // Of the step in progress.
  TimeUs now = 0;
  Outbox* out = nullptr;

  bool running() const { return state == ClientState::kRunning; }
  bool paused() const { return now - heard >= lease_us; }  // rule N5
  // A step is about to be taken: there is one for each heartbeat at least, which are less than a lease apart.
  void Begin(TimeUs step) {
    now = step;
    listening.Note(now, lease_us);
  }
  // Counts a refusal that may pass. True: it has lasted for so long that it will not (rule E7).
  bool GivesUp(Patience* patience) const {
    return patience->Refused(now, kLeasesUntilLost * lease_us, options.resend_us);
  }
  // "shard 3 has refused WHAT for 61 seconds: WHY", or without the time if that is 0.
  std::string Refusal(ShardId shard, const std::string& what, const std::string& why, TimeUs since) const;
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
