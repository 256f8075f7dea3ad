// Pushes: gives every section its sequence number, keeps it until its shard has acknowledged it, and repeats in
// order what is not. Rules E1, E2, E5 of docs/protocol.md. Internal to worker/; one thread.
//
// A partition applies its sequences in order, so an acknowledgement of n speaks for all up to n, and "expected n"
// for all below n.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "worker/client/client_desk.h"
#include "worker/client/client_pieces.h"
#include "worker/client/client_pulls.h"
#include "worker/client/client_sender.h"

namespace tarn::worker {

class ClientPushes {
 public:
  ClientPushes(ClientDesk* desk, ClientPulls* pulls) : desk_(desk), pulls_(pulls) {}

  // After Welcome: the number of partitions is known.
  void Begin(std::size_t partitions) { partitions_.resize(partitions); }

  struct What {
    Clock clock;
    Clock pulled_clock;
    RequestId pull;  // PushPull: the pull (of ClientPulls::Begin) that asks for the same rows; 0: none
  };
  // A push of the caller's whose clock is open already, and which travels with others of its table.
  struct Gathered {
    RequestId push;
    Clock clock;
  };
  // Without `gathered` a push of the caller's; else what is the sum of these.
  RequestId Add(const Plan& plan, const TableSpec& spec, const Buffer& gradients, const What& what,
                std::vector<Gathered> gathered = {});
  // From now on there is a push of this clock that is not acknowledged.
  void Open(Clock clock) { ++open_clocks_[clock]; }

  void OnAck(ShardId from, const PushAck& ack);
  // For errors that name a request that is no pull.
  void OnError(ShardId from, const ErrorReply& error);
  void OnTimer();
  TimeUs NextTimer() const;
  // Sends what credits allow; pushes of clocks for which `may_go` is false wait, and those behind them (rule M1).
  template <typename MayGo>
  void Dispatch(const MayGo& may_go) {
    for (Lane& lane : lanes_)
      while (!lane.queue.empty() && may_go(messages_.at(lane.queue.front()).clock) && SendFirst(&lane)) continue;
  }
  void Reroute();

  // The last sequence given out for a partition: what a later pull must see.
  Sequence LastSequence(PartitionId partition) const { return partitions_[partition.value].issued; }
  // Whether every push of clocks < clock is acknowledged (rule C1).
  bool AllAckedBefore(Clock clock) const { return open_clocks_.empty() || open_clocks_.begin()->first >= clock; }
  bool idle() const { return messages_.empty(); }
  std::size_t pending_bytes() const { return pending_bytes_; }
  std::uint64_t Hash() const;

 private:
  using Order = std::uint64_t;  // of issue; of two messages for a partition the lower goes first
  struct Pending {              // one message
    RequestId push;             // of the caller
    RequestId pull_message;     // ClientPulls' message that may go along; 0: none
    TableId table;
    Clock clock, pulled_clock;
    ValueCodec codec = ValueCodec::kFp32;
    ShardId shard;
    KeyList keys;
    Buffer frame, values;
    std::uint32_t unacked = 0;  // sections
    bool counted = false;       // in the bytes
    bool by_name = false;       // its keys were, the last time
    RequestId attempt;          // of the last time it was sent; 0: in the queue
    std::size_t bytes() const { return kMessageOverheadBytes + frame.size() + values.size(); }
  };
  struct PartitionLog {
    Sequence issued, acked;
    std::deque<Order> waiting;  // the message of each sequence acked+1 .. issued
  };
  struct Lane {
    explicit Lane(std::size_t limit) : credit(limit) {}
    Credit credit;
    std::map<Order, Pending*> in_flight;
    std::deque<Order> queue;
    RequestId first_attempt;  // refusals of attempts before this one are out of date
    TimeUs due = kNever;
    std::uint32_t repeats = 0, refusals = 0;
    Patience patience;
  };
  struct CallerPush {
    Clock clock;
    std::uint32_t messages = 0;      // unacknowledged
    std::size_t bytes = 0;           // of all: those acknowledged may share a buffer with those that are not
    std::vector<Gathered> gathered;  // what it is the sum of; none: it is the caller's
  };

  Lane& LaneOf(ShardId shard);
  void Number(KeyList* keys);
  void Enqueue(Pending pending);
  void Split(const Pending& pending, const std::map<ShardId, std::vector<std::uint32_t>>& by_owner);
  bool SendFirst(Lane* lane);  // false: it has no credit left
  void Transmit(Pending* pending);
  void AckThrough(PartitionId partition, Sequence sequence);
  void Finish(Order order);
  void Acknowledged(const Gathered& push);
  void Repeat(Lane* lane);
  void Refused(ShardId shard, RequestId attempt, const Error& error);
  void GiveUp(ShardId shard, const Pending& refused, const Error& error, TimeUs since);

  ClientDesk* desk_;
  ClientPulls* pulls_;
  std::vector<PartitionLog> partitions_;
  std::map<Order, Pending> messages_;
  std::map<RequestId, CallerPush> pushes_;
  std::map<Clock, std::uint32_t> open_clocks_;  // pushes that are not acknowledged, by clock
  std::vector<Lane> lanes_;
  Order next_order_ = 1;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tarn::worker
