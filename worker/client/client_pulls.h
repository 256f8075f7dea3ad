// Pulls: sends one message a shard and piece, repeats those that are not answered, and hands the rows of each reply to
// the pull's sink. Rules C3, C4 of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "worker/client/byte_credit.h"
#include "worker/client/client_cache.h"
#include "worker/client/client_context.h"
#include "worker/client/client_pieces.h"
#include "worker/client/completion.h"
#include "worker/client/key_lists.h"

namespace tarn::worker {

class ClientPulls {
 public:
  ClientPulls(ClientContext* context, KeyLists* lists) : context_(context), lists_(lists) {}

  // A pull of the rows of a plan (one at least), whose messages follow with Add. `cached`, if not null, is the sink,
  // and lives as long as the pull.
  RequestId Begin(const Plan& plan, const TableSpec& spec, const PullWhen& when, PullSink* sink,
                  std::unique_ptr<CachedPull> cached = nullptr);
  // One message of `pull`; `keys` names the sequences that the reply must contain. Returns the message's id.
  RequestId Add(RequestId pull, Piece piece, KeyList keys, Buffer keys_frame);

  // For PushPull: takes the message into flight if its credit allows, so that it can travel with the push, whose keys
  // are its own, by name or not.
  struct Claimed {
    RequestId request;
    Clock clock;
    ValueCodec codec = ValueCodec::kFp32;
  };
  bool Claim(RequestId message, bool by_name, Claimed* claimed);

  void OnReply(ShardId from, const PullReply& reply, const Buffer& values);
  // False: not a request of ours that waits.
  bool OnError(ShardId from, const ErrorReply& error);
  // A push that was to bring the pull along was refused: ask on our own after `pause`.
  void RetryAfter(RequestId message, TimeUs pause);
  void OnTimer();
  TimeUs NextTimer() const;
  void Dispatch();  // sends what credits allow
  void Reroute();   // the route map is newer: everything unanswered goes out again
  void FailAll(const Error& error);
  bool idle() const { return pulls_.empty(); }
  std::uint64_t Hash() const;

 private:
  struct PullState {  // one pull of the caller
    TableId table;
    std::uint32_t dim = 0;
    Clock clock;
    int priority = 0;
    bool counted = true;
    ValueCodec codec = ValueCodec::kFp32;
    PullSink* sink = nullptr;
    std::uint32_t pieces = 0;  // unanswered
    std::uint64_t staleness = 0;
    std::unique_ptr<CachedPull> cached;  // null: of a table whose rows are not kept
  };
  struct PullMessage {  // one message of it
    RequestId pull;
    Clock clock;
    ShardId shard;
    std::vector<PlanRun> parts;
    KeyList keys;
    Buffer frame;
    std::size_t bytes = 0;  // request and expected answer
    bool sent = false, counted = false;
    bool by_name = false;  // its keys were, the last time
    TimeUs due = kNever;
    std::uint32_t repeats = 0, refusals = 0;
    RefusalTimer refusal_timer;
  };
  // In a queue: earlier clocks first, since later ones may depend on them, then what its caller needs first.
  struct Turn {
    Clock clock;
    int behind = 0;  // the priority's complement: the highest is the least
    RequestId id;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  struct ShardQueue {
    explicit ShardQueue(std::size_t limit) : credit(limit) {}
    ByteCredit credit;
    std::set<Turn> waiting;
    std::map<Clock, std::uint32_t> in_flight;  // messages, by clock
  };

  ShardQueue& QueueOf(ShardId shard);
  Turn TurnOf(RequestId id, const PullMessage& message) const {
    return {message.clock, ~pulls_.at(message.pull).priority, id};
  }
  bool MaySend(const ShardQueue& queue, const PullMessage& message) const;
  void Launch(RequestId id, PullMessage* message);
  void Transmit(RequestId id, PullMessage* message);
  void SetDue(RequestId id, PullMessage* message, TimeUs due);
  void Release(RequestId id, PullMessage* message);
  void Refused(RequestId id, PullMessage* message, const Error& error);
  void Fail(const PullMessage& message, const Error& error, TimeUs since);
  void Finish(RequestId pull);
  void Drop(RequestId pull);
  void Requeue(RequestId id, PullMessage message);

  ClientContext* context_;
  KeyLists* lists_;
  std::map<RequestId, PullState> pulls_;
  std::map<RequestId, PullMessage> messages_;
  std::vector<ShardQueue> queues_;
  std::set<std::pair<TimeUs, RequestId>> timers_;
};

}  // namespace tarn::worker
