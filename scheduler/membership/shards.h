// The shards of the fleet: their joins (rule N1), what their heartbeats report and their silence (rule N4).
//
//   Shards shards({.count = 4, .lease_us = lease_us});
//   const Shards::Joined joined = shards.OnJoin(from, join, now, &incarnations, mail);
//   if (shards.Complete()) shards.Form(now);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "scheduler/membership/incarnations.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/nodes.h"

namespace tarn::scheduler {

class Shards {
 public:
  struct Options {
    std::uint32_t count = 1, per_server = 1;
    TimeUs lease_us = 0;
    std::string after_a_lost_shard;  // text for users: what is lost, and how to continue
  };
  explicit Shards(Options options);
  // Restores which records are durable in each shard's log, for a run with a log.
  void Restore(const std::vector<LogSequence>& logged);

  // Handles a Join of a shard's process. Sends rejections and requests to wait; the caller sends a Welcome to
  // `welcome`.
  struct Joined {
    std::string note;                    // for the log; may be empty
    const ShardNode* welcome = nullptr;  // a known process has repeated its Join
    bool is_new = false;                 // a process has joined as this shard
  };
  Joined OnJoin(Peer from, const Join& join, TimeUs now, Incarnations* incarnations, const Mailer& mail);
  bool Complete() const { return joined() == nodes_.size(); }
  // The fleet is complete: no other process may replace a shard. Returns the endpoints by shard.
  std::vector<std::string> Form(TimeUs now);
  bool formed() const { return formed_; }

  // Records that a shard has sent a message, and returns the shard; null unless this incarnation is in the fleet.
  // `from`: the peer for answers; nullopt: unchanged.
  const ShardNode* RecordContact(const Sender& sender, std::optional<Peer> from, TimeUs now);
  // `newest`: the newest view. `whole_since`: the first view with the newest complete checkpoint; sizes of logs
  // reported under older views are ignored, because the logs were not truncated yet.
  void OnHeartbeat(ShardId shard, const Heartbeat& heartbeat, ViewVersion newest, ViewVersion whole_since);
  // Sets the sizes of the logs to 0, because a new complete checkpoint lets the shards truncate them.
  void ForgetLogBytes();
  ViewSent* view_sent(ShardId shard) { return &nodes_[shard.value].view_sent; }

  // The first shard that has been silent for longer than lease_us. Silence counts from `listening_since` at the
  // earliest, when the scheduler began to receive.
  std::optional<ShardId> Silent(TimeUs now, TimeUs listening_since) const;
  // Removes processes that joined and became silent before the fleet was complete.
  void DropSilent(TimeUs now, TimeUs listening_since);

  const std::vector<ShardNode>& all() const { return nodes_; }
  const ShardNode& at(ShardId shard) const { return nodes_[shard.value]; }
  std::size_t size() const { return nodes_.size(); }
  std::uint32_t joined() const;
  bool Confirmed(ViewVersion version) const { return LeastConfirmed() >= version; }
  ViewVersion LeastConfirmed() const;
  // Whether a shard writes this checkpoint, or an earlier one, as far as its last heartbeat says.
  bool Writes(CheckpointId id) const;
  // Whether a shard may still write to the directory of a checkpoint that no view from `version` on orders.
  bool MayWrite(CheckpointId id, ViewVersion version) const;
  Clock MinClock() const;
  Clock MaxClock() const;
  // Size of the largest log, from reports since the newest complete checkpoint.
  std::uint64_t LogBytes() const;
  std::vector<LogSequence> Logged() const;
  void AddPeers(std::map<Incarnation, Peer>* peers) const;

 private:
  // Rejects a process whose rank or number of shards per server does not match the job. Returns a note for the log;
  // empty: accepted.
  std::string RefuseMisfit(Peer from, const Join& join, const Mailer& mail) const;
  // Rejects a process whose rank another process uses, which may have died. Returns a note for the log.
  std::string RefuseRival(Peer from, const Join& join, const ShardNode& shard, const Mailer& mail) const;

  Options options_;
  std::vector<ShardNode> nodes_;
  bool formed_ = false;
};

}  // namespace tarn::scheduler
