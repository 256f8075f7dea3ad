// Pushes: assigns a sequence number to every section, stores each section until its shard has acknowledged it, and
// repeats unacknowledged ones in order. The small pieces of several tables of one call share a message to each shard
// (rule W6). Rules E1, E2, E5 of docs/protocol.md. Internal to worker/; one thread.
//
// A partition applies its sequences in order. So an acknowledgement of n acknowledges all sequences up to n, and
// "expected n" all below n.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "worker/client/byte_credit.h"
#include "worker/client/client_context.h"
#include "worker/client/client_pieces.h"
#include "worker/client/completion.h"
#include "worker/client/key_lists.h"
#include "worker/client/pull_memory.h"
#include "worker/client/shard_set.h"

namespace tarn::worker {

class ClientPushes {
 public:
  ClientPushes(ClientContext* context, KeyLists* lists) : context_(context), lists_(lists) {}

  // After Welcome: the number of partitions is known.
  void Begin(std::size_t partitions) { partitions_.resize(partitions); }

  struct What {
    Clock clock;
    Completion<>* done = nullptr;
    PushAction action = PushAction::kStep;
  };
  // A push of the caller that is sent as part of a combined push; its clock is already open.
  struct Gathered {
    Clock clock;
    Completion<>* done = nullptr;
  };
  // Adds a push of the caller or, with `gathered`, the sum of those pushes. plan.keys must not be empty. kDelete has no
  // gradients, kAssign has values.
  void Add(const Plan& plan, const TableSpec& spec, const PushRows& rows, const PushOrigin& origin, const What& what,
           std::vector<Gathered> gathered = {});
  // See ClientPulls::BeginGroup.
  void BeginGroup() { ++group_; }
  // Records an unacknowledged push of this clock.
  void Open(Clock clock) { ++open_clocks_[clock]; }

  void OnAck(ShardId from, const PushAck& ack);
  // Handles errors for a request that is not a pull.
  void OnError(ShardId from, const ErrorReply& error);
  void OnTimer();
  TimeUs NextTimer() const { return earliest_due_; }
  // Sends pushes as credits allow. A push of a clock for which `may_go` is false waits, and so do all pushes behind it
  // in the queue of its shard (rule M1).
  template <typename MayGo>
  void Dispatch(const MayGo& may_go) {
    backlog_.Visit([&](ShardId shard) {
      ShardQueue& queue = queues_[shard.value];
      while (!queue.waiting.empty() && may_go(messages_.at(queue.waiting.front()).clock) && SendFirst(&queue)) continue;
      return !queue.waiting.empty();
    });
  }
  void Reroute();
  void FailAll(const Error& error);

  // The last sequence assigned for a partition, which a later pull must see.
  Sequence LastSequence(PartitionId partition) const { return partitions_[partition.value].issued; }
  // Whether every push of clocks < clock is acknowledged (rule C1).
  bool AllAckedBefore(Clock clock) const { return open_clocks_.empty() || open_clocks_.begin()->first >= clock; }
  bool idle() const { return messages_.empty(); }
  std::size_t pending_bytes() const { return pending_bytes_; }
  // Number of messages to the shard that are not acknowledged.
  std::size_t Unanswered(ShardId shard) const {
    return shard.value < queues_.size() ? queues_[shard.value].in_flight.size() : 0;
  }
  std::uint64_t Hash() const;

 private:
  using Order = std::uint64_t;  // order of issue: of two messages for a partition the lower is sent first
  struct Part {                 // a piece of a push in a message
    RequestId push;             // the caller's push
    PushPart rows;
    bool counted = false;    // included in ClientCounters::push_bytes
    bool by_number = false;  // the last send had the number of a key list
    std::size_t bytes() const { return rows.keys.frame.size() + rows.values.size(); }
  };
  struct PushMessage {
    Clock clock;
    ShardId shard;
    std::uint64_t group = 0;  // see BeginGroup
    TableParts<Part> parts;
    std::size_t bytes = kMessageOverheadBytes;
    std::uint32_t unacked = 0;  // number of unacknowledged sections
    RequestId attempt;          // id of the last send; 0: in the queue
  };
  struct PartitionLog {
    Sequence issued, acked;
    std::deque<Order> waiting;  // message of each sequence from acked + 1 to issued
  };
  struct ShardQueue {
    explicit ShardQueue(std::size_t limit) : credit(limit) {}
    ByteCredit credit;
    std::map<Order, PushMessage*> in_flight;
    std::deque<Order> waiting;
    RequestId first_attempt;  // errors for earlier attempts are outdated
    TimeUs due = kNever;
    std::uint32_t repeats = 0, refusals = 0;
    RefusalTimer refusal_timer;
  };
  struct CallerPush {
    Clock clock;
    std::uint32_t pieces = 0;  // unacknowledged
    std::size_t bytes = 0;     // of all pieces, because acknowledged ones may share a buffer with others
    Completion<>* done = nullptr;
    std::vector<Gathered> gathered;  // the pushes that it sums; empty: a push of the caller
  };

  ShardQueue& QueueOf(ShardId shard);
  void SetDue(ShardQueue* queue, TimeUs due);
  void Number(KeyList* keys);  // gives each section its sequence
  void Enqueue(Clock clock, Part part);
  PushMessage* Shared(const ShardQueue& queue, Clock clock, const Part& part);
  void Requeue(Clock clock, Part part);
  void Split(Clock clock, const Part& part, const std::map<ShardId, std::vector<std::uint32_t>>& by_owner);
  bool SendFirst(ShardQueue* queue);  // false: no credit left
  void Transmit(PushMessage* message);
  void AckThrough(PartitionId partition, Sequence sequence);
  void Finish(Order order);
  void Finish(const Part& part);
  void Acknowledged(const Gathered& push);
  static void FailPush(CallerPush* push, const Error& error);
  void Repeat(ShardQueue* queue);
  void Refused(ShardId shard, RequestId attempt, const Error& error);
  void GiveUp(ShardId shard, const PushMessage& refused, const Error& error, TimeUs since);

  ClientContext* context_;
  KeyLists* lists_;
  std::vector<PartitionLog> partitions_;
  std::map<Order, PushMessage> messages_;
  std::map<RequestId, CallerPush> pushes_;
  std::map<Clock, std::uint32_t> open_clocks_;  // number of unacknowledged pushes by clock
  std::vector<ShardQueue> queues_;
  ShardSet backlog_;              // shards with waiting messages, and others
  TimeUs earliest_due_ = kNever;  // no queue is due earlier
  Order next_order_ = 1;
  std::uint64_t group_ = 0;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tarn::worker
