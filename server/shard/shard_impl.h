// The shard's inside; included by shard*.cc only. shard.cc takes messages and timers, shard_control.cc deals with the
// scheduler, shard_cut.cc and shard_blobs.cc with checkpoints, shard_data.cc with the workers, shard_tier.cc with rows
// on disk, shard_durable.cc and shard_replay.cc with the log.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "server/checkpoint/checkpoint_store.h"
#include "server/checkpoint/row_loader.h"
#include "server/log/record.h"
#include "server/log/shard_log.h"
#include "server/shard/blob_desk.h"
#include "server/shard/clock_buckets.h"
#include "server/shard/cohort.h"
#include "server/shard/held_answers.h"
#include "server/shard/key_lists.h"
#include "server/shard/watermark_table.h"
#include "server/shard/parked_pulls.h"
#include "server/shard/reply_budget.h"
#include "server/shard/shard.h"
#include "server/store/store.h"
#include "server/tier/cold_gate.h"

namespace tarn::server {

class Shard::Impl {
 public:
  Impl(ShardOptions options, CheckpointStore* store, ShardObserver* observer);

  void Start(TimeUs now, Outbox* out);
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;
  void OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out);
  void OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out);
  void OnTier(TimeUs now, Outbox* out);
  void BoundOthers(std::size_t memory_limit);
  std::size_t WaitingBytes() const;
  void Abandon(const Error& error, Outbox* out);
  // Runs a step; one that runs out of memory leaves nothing in `out` but the shard's end.
  template <typename Step>
  void Guard(Outbox* out, Step step);
  void OnLogSynced(TimeUs now, Outbox* out);
  Expected<std::uint64_t> StateHash() const;
  Expected<std::uint64_t> DurableHash() const;

  ShardOptions options_;
  CheckpointStore* store_;
  ShardObserver nobody_;
  ShardObserver* observer_;
  ShardCounters counters_;

  // The scheduler.
  bool joined_ = false;
  std::uint64_t job_ = 0;  // fingerprint, from Welcome
  Incarnation incarnation_;
  View view_;
  TimeUs heartbeat_us_;
  TimeUs busy_poll_us_ = 0;
  TimeUs lease_us_;
  TimeUs heard_ = 0;      // when the scheduler was
  TimeUs next_beat_ = 0;  // Join or Heartbeat
  bool stopped_ = false;
  bool ended_ = false;  // and the scheduler knows, or could not be told
  Shutdown stop_reason_;
  TimeUs stopped_at_ = 0, next_telling_ = 0;  // of a shard that stopped by itself
  std::uint32_t tellings_ = 0;                // of why, in due time

  // The state.
  std::unique_ptr<Store> rows_;
  TimeUs next_time_ = 0;   // when the rows are told the time again
  TimeUs next_sweep_ = 0;  // when rows that have expired are looked for again
  Cohort cohort_;
  Status failure_;  // of the tier: the step ends the shard
  ClockBuckets buckets_;
  ParkedPulls parked_;
  ReplyBudget replies_;
  BucketCloser closer_;
  BlobDesk blobs_;
  std::string resume_directory_;  // of the checkpoint that workers go on from too; empty: none
  KeyLists lists_;
  ColdGate gate_;

  // Checkpoints.
  CheckpointId newest_order_;     // seen
  CheckpointId last_cut_, base_;  // the newest cut that was begun, and what changes are counted from until one is whole
  bool resumed_ = false;          // rows were loaded: changes are counted from that checkpoint
  std::optional<CheckpointOrder> pending_cut_;
  std::set<CheckpointId> writing_;  // begun in the store, which has not reported yet
  // A cut whose rows are being copied, a slice at a time.
  struct ActiveCut {
    CheckpointOrder order;
    Clock max_clock;
    std::vector<TableRows> tables;  // without rows

    bool hash_only() const { return order.directory.empty(); }  // rule K6
  };
  std::optional<ActiveCut> cut_;
  TimeUs next_slice_ = 0;
  std::optional<CheckpointPart> part_;  // written; repeated until the view has no such order

  // The log (rules L1 to L6).
  bool logging_ = false;  // inputs are logged, and what tells of them waits
  LogSequence appended_, synced_;
  CheckpointId dropped_before_;
  HeldAnswers held_;
  std::optional<Heartbeat> said_;  // the last heartbeat that has left
  bool IsDurable() const { return !logging_ || synced_ >= appended_; }

 private:
  // shard.cc
  Message Make(Body body) const;
  void Send(Peer to, Body body);
  void StopWith(ErrorCode code, std::string reason);
  // Keeps the first error of the tier. Whether there was none in this call.
  bool Note(const Status& status);
  bool IsFromScheduler(Peer from, const Message& message) const;
  void TellReason();

  // shard_control.cc
  void OnControl(Message message);
  void OnShutdown();
  void OnWelcome(const Message& message);
  Status Enter(const Message& message, const Welcome& welcome);
  Status AddAndLoad(const std::vector<TableSpec>& tables, const std::string& resume_directory,
                    RowLoader::Unknown unknown = RowLoader::Unknown::kRefused);
  Status Adopt(const View& view);
  Status AdoptRoutes(const View& view);
  void AdoptMembers(const View& view);
  void SendJoin();
  void SendHeartbeat();
  void SendPart();

  // shard_control.cc: what a higher minimum clock or a new order sets off.
  void Advance();
  void CloseBelow(Clock clock);

  // shard_cut.cc
  void AdoptOrder(const CheckpointOrder& order);
  void CutIfDue();
  bool KnowsBase(const CheckpointOrder& order) const;
  void Cut();
  void ContinueCut();
  void FinishCut();
  void AbandonCut();
  CheckpointId OldestWritten() const;
  void ReportPart(CheckpointPart part);

  // shard_blobs.cc
  Status OnPutBlob(Peer from, const PutBlob& piece, const Message& message);
  Status OnGetBlob(Peer from, const GetBlob& wanted, const Message& message);

  // shard_durable.cc
  void SendWhenDurable(Peer to, Body body);
  void AnswerWhenDurable(Peer to, Incarnation worker, Body body, bool first);
  void SayAlive(Heartbeat beat);
  void Log(LogRecord record);
  void LogPush(const Push& push, const Message& message, std::span<const Key> keys);
  void LogView(const View& view);
  void BeginSegment(CheckpointId cut);
  LoggedHead MakeHead() const;
  std::uint64_t SoftHash() const;
  std::uint64_t BucketsHash() const;

  // shard_replay.cc
  class Replayer;
  Status EnterWithLog(const Welcome& welcome);
  Status CheckIsNewer(const View& view) const;
  Status Restore(const LoggedHead& head, const std::string& resume_directory);
  Status Replay(const LoggedPush& push);
  Status Replay(const LoggedTick& tick);
  Status Replay(const LoggedView& view);
  Status Replay(const LoggedGathered& gathered);

  // shard_life.cc
  void TellTime();
  void ContinueLives();
  TimeUs NextLives() const;

  // shard_data.cc
  void OnData(Peer from, Message message);
  bool Paused() const;
  void Handle(Peer from, Message message);
  Expected<const Cohort::Member*> CheckSender(const Message& message) const;
  void Refuse(Peer to, const Body& body, const Error& error);
  // Once more does nothing.
  bool IsAppliedAtOnce(const Message& message) const;
  enum class Part { kKeys, kAll };
  static void TakeOver(Message* message, Part part);
  void DecodeParts(Message* message);
  void PutKeys(Message* message);
  void PutValues(Message* message);
  void HoldKeys(Incarnation incarnation, const KeyList& keys, const Buffer& frame);
  Status OnPush(Peer from, const Push& push, const Message& message, const Cohort::Member& member);
  Status OnPull(Peer from, Pull pull, const Message& message);
  Status OnTick(Peer from, const Tick& tick, const Message& message, const Cohort::Member& member);
  Expected<std::span<const Key>> CheckedKeys(const Push& push, const Message& message, const Cohort::Member& member);
  ErrorCode Take(const Section& section, Incarnation incarnation, bool fits);
  bool MayTake(const Push& push, const TableSpec& table, const Message& message) const;
  void Perform(const Push& push, const Message& message, std::span<const Key> keys);
  void Apply(const Push& push, const Message& message, std::span<const Key> keys);
  void Gather(const Push& push, const Message& message);
  bool BucketFits(Clock clock, const Message& message) const;
  bool NeverFits(const Push& push, const PushAck& ack);
  Status AnswerOrPark(ParkedPull parked);
  bool HasOwnPushes(const ParkedPull& parked) const;
  Status Answer(const ParkedPull& parked);
  void AnswerWaiting(std::vector<ParkedPull> parked);
  void AnswerOpened();
  void AnswerAfterPush(Incarnation incarnation);

  // shard_tier.cc
  Expected<std::unique_ptr<Residency>> MakeTier(const Job& job, std::size_t partitions);
  void TendTier();
  bool Waits(Peer from, Message& message);
  struct NeededRows {
    const TableSpec* table;
    ValueCodec codec;
    const KeyList* keys;
    bool now;  // the message cannot be handled before they are in memory
  };
  std::optional<NeededRows> RowsNeeded(const Message& message) const;
  FetchTicket FetchRowsOf(const NeededRows& needed, const Message& message);
  FetchTicket BeginFetch(const Message& message);

  // Of the current step.
  TimeUs now_ = 0;
  Outbox* out_ = nullptr;
  // Scratch.
  std::vector<Key> keys_;
  std::vector<CutRows> chunks_;
  std::vector<bool> taken_;  // by section of the push at hand: new, and counted
};

}  // namespace tarn::server
