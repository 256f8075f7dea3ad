// The requests of a worker to shards: sends pulls, pushes and ticks as messages, and completes them when shards answer.
// Internal to worker/; one thread. Requests may be made after a Welcome.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "core/message.h"
#include "worker/client/byte_credit.h"
#include "worker/client/client_cache.h"
#include "worker/client/client_context.h"
#include "worker/client/client_pulls.h"
#include "worker/client/client_pushes.h"
#include "worker/client/client_ticks.h"
#include "worker/client/completion.h"
#include "worker/client/key_lists.h"
#include "worker/client/pull_memory.h"
#include "worker/client/push_combiner.h"
#include "worker/client/residuals.h"
#include "worker/client/row_refresher.h"

namespace tarn::worker {

class ClientData {
 public:
  explicit ClientData(ClientContext* context);

  // After Welcome: the job and the number of partitions are known.
  void Begin(Clock start);
  void Reroute();  // call it when the route map is newer

  // See Client.
  void Pull(std::span<const TableToPull> tables);
  void Push(std::span<const TableToPush> tables, Clock pulled_clock);
  void Change(const Plan& plan, PushAction action, const Buffer& values, Completion<>* done);
  void Prefetch(const Plan& plan);
  void TickTo(Clock clock, const MaybePosition& position, Completion<>* done);
  void NoteCached(const Plan& plan, Clock use, Clock oldest);
  void DropCachedRows() { cache_.Clear(); }
  // Sends combined pushes without waiting for later clocks.
  void FlushPushes() { combiner_.FlushAll(); }

  // Handles the answer of a shard to these requests. False: another message.
  bool OnMessage(ShardId shard, const Message& message);
  void OnError(ShardId shard, const ErrorReply& error);
  void OnTimer();
  TimeUs NextTimer() const;

  // Sends the messages that credits and clocks allow. `push_separately`: pushes are not combined (rule H7).
  void Dispatch(bool push_separately);
  // Without last_message and state.
  ShardWaits WaitsFor(ShardId shard) const {
    return {.pulls = pulls_.Unanswered(shard), .pushes = pushes_.Unanswered(shard), .tick = ticks_.Unanswered(shard)};
  }
  bool idle() const { return combiner_.idle() && pushes_.idle() && pulls_.idle() && ticks_.idle(); }
  std::size_t pending_bytes() const { return pushes_.pending_bytes(); }
  void FailAll(const Error& error);
  // Before the worker leaves: drops standing pulls, and fails the pulls for clocks above the last requested tick. The
  // worker will not reach these clocks, so shards might never answer.
  void FailPullsOfLaterClocks();
  std::uint64_t Hash() const;

  ClientTicks* ticks() { return &ticks_; }
  const ClientTicks* ticks() const { return &ticks_; }
  Residuals* residuals() { return &residuals_; }

 private:
  Expected<const TableSpec*> TableOf(const Plan& plan) const;
  void PullTable(const Plan& plan, const PullWhen& when, PullSink* sink);
  void PushTable(const Plan& plan, const Buffer& gradients, PullMemory::Uses uses, const ClientPushes::What& what);
  void Ask(RequestId pull, const TableSpec& spec, const Plan& plan);
  // The clock at which the pushed rows were used, and the clock for which they were pulled. They differ only if the
  // rows came late, so that the worker skipped from the second to the first (rule C8).
  PullMemory::Uses UsesOf(Clock pulled_clock) const { return {pulled_clock, ticks_.PulledFor(pulled_clock)}; }
  std::shared_ptr<PullRecord> Remember(const Plan& plan, const TableSpec& spec, const PullWhen& when);
  Residuals::Sent Compress(const Plan& plan, const TableSpec& spec, const Buffer& gradients, Clock clock);
  void ChooseLists();
  // Rows for clock `use` have arrived; `open` is the latest open clock of the replies.
  void OnOpenClock(const TableSpec& spec, Clock use, Clock open);
  void AskStanding(const TableSpec& spec, const Plan& plan, Clock use, std::unique_ptr<CachingSink> sink);
  void OnErrorWithoutRequest(ShardId shard, const ErrorReply& error);

  ClientContext* context_;
  KeyLists lists_;
  ClientCache cache_;
  PullMemory memory_;
  ClientPulls pulls_;
  RowRefresher refresher_;
  ClientPushes pushes_;
  PushCombiner combiner_;
  ClientTicks ticks_;
  Residuals residuals_;
  std::map<ShardId, RefusalTimer> errors_without_request_;  // an entry ends with the next reply of its shard
};

}  // namespace tarn::worker
