// Pulls: asks shards for rows piece by piece, repeats what is not answered, and puts the answers together in the
// order of the plan. Rules C3, C4 of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "worker/client/client_cache.h"
#include "worker/client/client_desk.h"
#include "worker/client/client_pieces.h"
#include "worker/client/client_sender.h"

namespace tarn::worker {

class ClientPulls {
 public:
  explicit ClientPulls(ClientDesk* desk) : desk_(desk) {}

  // A pull of all rows of a plan, whose pieces are added with Add. One without rows is done at once. With `cached` the
  // plan is what the cache lacks, and what it has joins the answer.
  RequestId Begin(const Plan& plan, const TableSpec& spec, PullWhen when, std::unique_ptr<CachedPull> cached = nullptr);
  // A pull of a part: the caller counts the whole.
  RequestId BeginPart(const Plan& plan, const TableSpec& spec, PullWhen when);
  // A pull of which the cache has everything: done at once.
  RequestId Answered(CachedPull* cached);
  // One message of `pull`; `keys` names the sequences that the answer must contain. Returns the message's id.
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
  bool idle() const { return pulls_.empty(); }
  std::uint64_t Hash() const;

 private:
  struct Assembly {  // one pull of the caller
    TableId table;
    std::uint32_t dim = 0;
    Clock clock;
    int priority = 0;
    ValueCodec codec = ValueCodec::kFp32;
    std::size_t rows = 0;
    Buffer values;             // empty until the first answer
    std::uint32_t pieces = 0;  // unanswered
    bool counted = true;
    std::uint64_t staleness = 0;
    std::unique_ptr<CachedPull> cached;  // null: of a table whose rows are not kept
  };
  struct Ask {  // one message of it
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
    Patience patience;
  };
  // In a queue: earlier clocks first, since later ones may depend on them, then what its caller needs first.
  struct Turn {
    Clock clock;
    int behind = 0;  // the priority's complement: the highest is the least
    RequestId id;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  struct Lane {
    explicit Lane(std::size_t limit) : credit(limit) {}
    Credit credit;
    std::set<Turn> queue;
    std::map<Clock, std::uint32_t> in_flight;  // messages, by clock
  };

  Assembly& Assemble(RequestId id, const Plan& plan, const TableSpec& spec, PullWhen when);
  Lane& LaneOf(ShardId shard);
  Turn TurnOf(RequestId id, const Ask& ask) const { return {ask.clock, ~pulls_.at(ask.pull).priority, id}; }
  bool MaySend(const Lane& lane, const Ask& ask) const;
  void Launch(RequestId id, Ask* ask);
  void Transmit(RequestId id, Ask* ask);
  void SetDue(RequestId id, Ask* ask, TimeUs due);
  void Release(RequestId id, Ask* ask);
  static bool TakeRows(const Ask& ask, const PullReply& reply, const Buffer& values, Assembly* whole);
  void Refused(RequestId id, Ask* ask, const Error& error);
  void Fail(const Ask& ask, const Error& error, TimeUs since);
  void Finish(RequestId pull);
  void Drop(RequestId pull);
  void Requeue(RequestId id, Ask ask);

  ClientDesk* desk_;
  std::map<RequestId, Assembly> pulls_;
  std::map<RequestId, Ask> asks_;
  std::vector<Lane> lanes_;
  std::set<std::pair<TimeUs, RequestId>> timers_;
};

}  // namespace tarn::worker
