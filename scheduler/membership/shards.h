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
    std::string after_a_lost_shard;  // for people: what is lost, and how to continue
  };
  explicit Shards(Options options);
  // What a run with a log kept: which records are durable in each shard's log.
  void Restore(const std::vector<LogSequence>& logged);

  // A process joins as a shard. Refusals and requests to wait are sent; `welcome` is to be sent by the caller.
  struct Joined {
    std::string note;                    // for the log; may be empty
    const ShardNode* welcome = nullptr;  // a known process repeats its Join: it is welcomed again
  };
  Joined OnJoin(Peer from, const Join& join, TimeUs now, Incarnations* incarnations, const Mailer& mail);
  bool Complete() const { return joined() == nodes_.size(); }
  // The fleet is complete: no other process may take a shard's place. Returns the endpoints by shard.
  std::vector<std::string> Form(TimeUs now);
  bool formed() const { return formed_; }

  // A message has come: null unless this incarnation is in the fleet. `from`: where it is answered; none: elsewhere.
  const ShardNode* Hear(const Sender& sender, std::optional<Peer> from, TimeUs now);
  // `newest`: of the view. `whole_since`: the view that named the newest whole checkpoint first; sizes of logs reported
  // under older views are those before the logs were shortened.
  void OnHeartbeat(ShardId shard, const Heartbeat& heartbeat, ViewVersion newest, ViewVersion whole_since);
  void ForgetLogBytes();
  ViewSent* view_sent(ShardId shard) { return &nodes_[shard.value].view_sent; }

  // Silence counts from `listening_since` at the earliest, since when the scheduler itself has been listening.
  std::optional<ShardId> Silent(TimeUs now, TimeUs listening_since) const;
  // Forgets processes that joined and fell silent before the fleet was complete.
  void DropSilent(TimeUs now, TimeUs listening_since);

  const std::vector<ShardNode>& all() const { return nodes_; }
  const ShardNode& at(ShardId shard) const { return nodes_[shard.value]; }
  std::size_t size() const { return nodes_.size(); }
  std::uint32_t joined() const;
  bool Confirmed(ViewVersion version) const { return LeastConfirmed() >= version; }
  ViewVersion LeastConfirmed() const;
  // Some shard may still write into the directory of a checkpoint whose order went with view `version`.
  bool MayWrite(CheckpointId id, ViewVersion version) const;
  Clock MinClock() const;
  Clock MaxClock() const;
  // Size of the largest log, as far as is known since the newest whole checkpoint.
  std::uint64_t LogBytes() const;
  std::vector<LogSequence> Logged() const;
  void AddPeers(std::map<Incarnation, Peer>* peers) const;

 private:
  // Refuses a process that does not fit the job, or that comes too late. Returns the note for the log; empty: it fits.
  std::string RefuseMisfit(Peer from, const Join& join, const Mailer& mail) const;
  // The same for one whose place another process of its rank holds, which may have died.
  std::string RefuseRival(Peer from, const Join& join, const ShardNode& shard, const Mailer& mail) const;

  Options options_;
  std::vector<ShardNode> nodes_;
  bool formed_ = false;
};

}  // namespace tarn::scheduler
