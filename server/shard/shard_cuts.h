// The shard's part in checkpoints: waits with an order of the scheduler for its clock, cuts the rows, copies them in
// slices, and reports the part until the view has no such order (rules K1 to K3, K6, K7). Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/checkpoint/row_loader.h"
#include "server/clock/cohort.h"
#include "server/shard/durable_outbox.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_step.h"
#include "server/shard/stop_notice.h"
#include "server/store/store.h"

namespace tarn::server {

class ShardCuts {
 public:
  // What they need of the shard; all outlive them.
  struct Context {
    CheckpointStore* store;
    Store* rows;
    const Cohort* cohort;
    DurableOutbox* outbox;
    ShardStep* step;
    StopNotice* stop;
    ShardCounters* counters;
    std::function<void(Clock)> close_below;         // closes what belongs before a cut
    std::function<void(CheckpointId)> on_cut;       // rows were cut: the log begins a segment with the state
    std::function<std::uint32_t()> shards_of_view;  // how many shards there are
  };
  struct Options {
    std::size_t slice_bytes = 0;  // copied at one go
    TimeUs pause_us = 0;          // the least time between two goes
  };
  ShardCuts(const Options& options, Context context) : options_(options), context_(std::move(context)) {}

  // Loads the rows of a checkpoint. Later cuts count changes from it.
  Status Load(const std::string& directory, RowLoader::Unknown unknown);

  // Takes the order of a view that was adopted; id 0: none.
  void Adopt(const CheckpointOrder& order);
  // The newest order seen; and sets the one that a log holds.
  CheckpointId newest_order() const { return newest_order_; }
  void RestoreNewestOrder(CheckpointId id) { newest_order_ = id; }
  // Rule K1: whether a push of this clock may be applied at once. If not, it waits for the cut.
  bool MayApply(Clock clock) const { return !pending_ || !pending_->at_clock || clock < pending_->clock; }

  // Cuts if an order waits and its clock has come.
  void CutIfDue();
  // Copies a slice of a cut under way, if one is due.
  void OnTimer();
  // When the next slice is due, if that is before `other`, else that. A cut that waits for room, or for rows on disk,
  // goes on when its store wakes the loop.
  TimeUs NextTimer(TimeUs other) const;

  // The store has written this shard's part, or given it up.
  void OnWritten(CheckpointPart part);
  // Reports a part that has failed or is written, unless the part has failed before.
  void Report(CheckpointPart part);
  // Repeats the part, if there is one.
  void SendPart();

  // The oldest checkpoint into whose directory rows may still be written; 0: none.
  CheckpointId writing() const { return writing_.empty() ? CheckpointId(0) : *writing_.begin(); }
  // The one that is being cut; 0: none.
  CheckpointId cutting() const { return cut_ ? cut_->order.id : CheckpointId(0); }

 private:
  // A cut whose rows are being copied, a slice at a time.
  struct ActiveCut {
    CheckpointOrder order;
    Clock max_clock;

    bool hash_only() const { return order.directory.empty(); }  // rule K6
  };
  // What later cuts may count changes from.
  struct Base {
    CheckpointId last_cut;  // the newest that was begun
    CheckpointId base;      // until one is whole
    bool loaded = false;    // rows were loaded: changes are counted from that checkpoint
  };

  bool KnowsBase(const CheckpointOrder& order) const;
  bool HasRoom() const { return !context_.rows->cut().waits() && context_.store->HasRoom(); }
  void Cut();
  void Continue();
  void BeginPart(const CheckpointOrder& order, std::vector<TableRows> tables);
  void Finish();
  void Abandon();

  Options options_;
  Context context_;
  CheckpointId newest_order_;
  CheckpointId current_order_;  // of the newest view
  Base base_;
  std::optional<CheckpointOrder> pending_;
  std::set<CheckpointId> writing_;  // begun in the store, which has not reported yet
  std::optional<ActiveCut> cut_;
  TimeUs next_slice_ = 0;
  std::optional<CheckpointPart> part_;  // written; repeated until the view has no such order
  std::vector<CutRows> chunks_;         // scratch
};

}  // namespace tarn::server
