// Pulls: sends the pieces of a pull, repeats unanswered ones, and passes the rows of each reply to the pull's sink. The
// small pieces of several tables of one call share a message to each shard (rule W6). Rules C3, C4 of docs/protocol.md.
// Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <functional>
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
#include "worker/client/pull_memory.h"
#include "worker/client/shard_set.h"

namespace tarn::worker {

class ClientPulls {
 public:
  // note_open(spec, use, open) is called when the rows of a pull have arrived; `open` is the latest open clock of the
  // replies.
  using NoteOpen = std::function<void(const TableSpec& spec, Clock use, Clock open)>;
  ClientPulls(ClientContext* context, KeyLists* lists, PullMemory* memory, NoteOpen note_open)
      : context_(context), lists_(lists), memory_(memory), note_open_(std::move(note_open)) {}

  // Begins a pull of the rows of a plan (at least one). The caller then adds its messages. `record` notes its replies;
  // null: no push of these rows will follow. `cached`, if not null, is the sink and is owned by the pull.
  RequestId Begin(const Plan& plan, const TableSpec& spec, const PullWhen& when, PullSink* sink,
                  std::shared_ptr<PullRecord> record, std::unique_ptr<CachedPull> cached = nullptr);
  // Begins a standing pull (rule H10), for which no caller waits: it is not counted, idle() ignores it, and it has no
  // record.
  RequestId BeginStanding(const Plan& plan, const TableSpec& spec, Clock use, std::unique_ptr<CachingSink> sink);
  void DropStanding();

  // Pieces that are added from now on share no message with earlier ones: what shares a message must not depend on
  // credits, so that a run can be repeated (tools/replay).
  void BeginGroup() { ++group_; }
  // Adds a piece of `pull`, for a message to its shard. `keys` names the sequences that the reply must contain.
  void Add(RequestId pull, Piece piece, KeyList keys);

  void OnReply(ShardId from, const PullReply& reply);
  // False: the error does not belong to an open pull.
  bool OnError(ShardId from, const ErrorReply& error);
  void OnTimer();
  TimeUs NextTimer() const;
  void Dispatch();  // sends messages as credits allow
  void Reroute();   // after a newer route map: sends all unanswered messages again
  void FailAll(const Error& error);
  void FailAfter(Clock last, const Error& error);  // pulls for later clocks
  bool idle() const { return pulls_.size() == standing_; }
  // False: the shard's last answer to a pull of the table, which may be old, reported no rows of it on disk.
  bool MayBeOnDisk(ShardId shard, TableId table) const {
    return shard.value >= queues_.size() || !queues_[shard.value].in_memory.contains(table);
  }
  // Number of messages to the shard that are not answered, without standing pulls.
  std::size_t Unanswered(ShardId shard) const;
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
    Clock open;  // the latest open clock of the replies
    std::shared_ptr<PullRecord> record;
    bool caches_rows = false;  // the worker caches rows of the table, here or in the training loop
    bool standing = false;
    std::unique_ptr<CachingSink> cached;  // null: the client does not cache the rows
  };
  struct Part {  // a piece of a pull in a message
    RequestId pull;
    std::vector<PlanRun> runs;
    KeyList keys;
    bool counted = false;    // its keys are included in ClientCounters::pull_bytes
    bool by_number = false;  // the last send had the number of a key list
  };
  struct PullMessage {
    Clock clock;
    int priority = 0;
    ShardId shard;
    TableParts<Part> parts;
    std::uint64_t group = 0;  // see BeginGroup
    std::size_t sections = 0;
    std::size_t request_bytes = 0;
    std::size_t bytes = kMessageOverheadBytes;  // of the request and the expected reply
    bool sent = false;
    bool standing = false;  // of a standing pull: takes no credit
    TimeUs due = kNever;
    std::uint32_t repeats = 0, refusals = 0;
    RefusalTimer refusal_timer;
  };
  // Order in the queue: earlier clocks first, because later ones may depend on them, then by priority.
  struct Turn {
    Clock clock;
    int behind = 0;  // complement of the priority, so that the highest sorts first
    RequestId id;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  struct ShardQueue {
    explicit ShardQueue(std::size_t limit) : credit(limit) {}
    void NoteDisk(const ReplyPart& reply);
    ByteCredit credit;
    std::set<Turn> waiting;
    RequestId last;                            // the message added last that is not large
    std::map<Clock, std::uint32_t> in_flight;  // number of messages by clock
    std::set<TableId> in_memory;               // tables whose last answer had on_disk = false
  };

  ShardQueue& QueueOf(ShardId shard);
  Turn TurnOf(RequestId id, const PullMessage& message) const { return {message.clock, ~message.priority, id}; }
  void Enqueue(ShardId shard, Part part);
  PullMessage* Shared(const ShardQueue& queue, const PullState& pull, std::size_t request_bytes, std::size_t bytes,
                      std::size_t sections);
  bool MaySend(const ShardQueue& queue, const PullMessage& message) const;
  void Launch(RequestId id, PullMessage* message);  // from the queue to those in flight; Transmit sends it
  void Transmit(RequestId id, PullMessage* message);
  void SetDue(RequestId id, PullMessage* message, TimeUs due);
  void Release(RequestId id, PullMessage* message);
  void Refused(RequestId id, PullMessage* message, const Error& error);
  void RetryAfter(RequestId id, PullMessage* message, TimeUs pause);
  void Fail(const PullMessage& message, const Error& error, TimeUs since);
  bool Answers(const ReplyPart& reply, const Part& part) const;
  void TakeRows(const Part& part, const ReplyPart& reply, Clock open);
  void Note(const PullState& pull, const Part& part, const ReplyPart& reply, Clock open);
  void Finish(RequestId pull);
  void Drop(std::span<const RequestId> pulls);
  void Erase(RequestId pull);
  void Requeue(RequestId id, PullMessage message);
  void Divide(PullMessage message);

  ClientContext* context_;
  KeyLists* lists_;
  PullMemory* memory_;
  NoteOpen note_open_;
  std::map<RequestId, PullState> pulls_;
  std::size_t standing_ = 0;  // number of standing pulls in pulls_
  std::uint64_t group_ = 0;
  std::map<RequestId, PullMessage> messages_;
  std::vector<ShardQueue> queues_;
  ShardSet backlog_;  // shards with waiting messages, and others
  std::set<std::pair<TimeUs, RequestId>> timers_;
};

}  // namespace tarn::worker
