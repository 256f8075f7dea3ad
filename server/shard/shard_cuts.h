// The shard's part in checkpoints: receives an order of the scheduler, waits for its clock, cuts the rows, copies them
// in slices, and reports the part until the view no longer has the order (rules K1 to K3, K6, K7). Not thread-safe.
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
  // Parts of the shard that cuts use; all outlive this object.
  struct Context {
    CheckpointStore* store;
    Store* rows;
    const Cohort* cohort;
    DurableOutbox* outbox;
    ShardStep* step;
    StopNotice* stop;
    ShardCounters* counters;
    std::function<void(Clock)> close_below;         // closes the clocks before a cut
    std::function<void(CheckpointId)> on_cut;       // called after a cut that writes rows; the log begins a segment
    std::function<std::uint32_t()> shards_of_view;  // number of shards of the fleet
  };
  struct Options {
    std::size_t slice_bytes = 0;  // bytes copied per slice
    TimeUs pause_us = 0;          // minimum time between two slices
  };
  ShardCuts(const Options& options, Context context) : options_(options), context_(std::move(context)) {}

  // Loads the rows of a checkpoint. Later cuts count changes from it.
  Status Load(const std::string& directory, RowLoader::Unknown unknown);

  // Adopts the order of a view; id 0: none.
  void Adopt(const CheckpointOrder& order);
  // The newest order seen. RestoreNewestOrder sets it from a log.
  CheckpointId newest_order() const { return newest_order_; }
  void RestoreNewestOrder(CheckpointId id) { newest_order_ = id; }
  // Whether a push of this clock may be applied at once. If not, it is refused until the cut is made (rule K1).
  bool MayApply(Clock clock) const { return !pending_ || !pending_->at_clock || clock < pending_->clock; }
  // Whether a push of this clock may be accepted. If not, it is refused until the checkpoint is complete, or the run
  // has ended without it (rule K12).
  bool MayAccept(Clock clock) const { return !last_ || (last_->at_clock && clock < last_->clock); }

  // Begins the cut if an order waits and its clock is reached.
  void CutIfDue();
  // Copies a slice of the current cut, if one is due.
  void OnTimer();
  // The earlier of `other` and the time of the next slice. A cut that waits for memory or for rows on disk continues
  // when its store wakes the loop.
  TimeUs NextTimer(TimeUs other) const;

  // Handles the store's report that it has written this shard's part, or failed.
  void OnWritten(CheckpointPart part);
  // Reports a part that is written or has failed, unless it failed before.
  void Report(CheckpointPart part);
  // Sends the report again, if there is one.
  void SendPart();

  // The oldest checkpoint to which rows may still be written; 0: none.
  CheckpointId writing() const { return writing_.empty() ? CheckpointId(0) : *writing_.begin(); }
  // The checkpoint that is being cut; 0: none.
  CheckpointId cutting() const { return cut_ ? cut_->order.id : CheckpointId(0); }

 private:
  // A cut whose rows are being copied.
  struct ActiveCut {
    CheckpointOrder order;
    Clock max_clock;

    bool hash_only() const { return order.directory.empty(); }  // rule K6
  };
  // The possible bases of later cuts.
  struct Base {
    CheckpointId last_cut;  // the newest cut that was begun
    CheckpointId base;      // of the newest incremental cut, in case that cut does not complete
    bool loaded = false;    // rows were loaded from a checkpoint, which is the first base
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
  CheckpointId current_order_;  // that of the newest view
  Base base_;
  std::optional<CheckpointOrder> pending_;
  std::optional<CheckpointOrder> last_;  // the current order, if no other checkpoint may follow
  std::set<CheckpointId> writing_;       // checkpoints begun in the store and not reported by it yet
  std::optional<ActiveCut> cut_;
  TimeUs next_slice_ = 0;
  std::optional<CheckpointPart> part_;  // the last report, repeated until the view no longer has the order
  std::vector<CutRows> chunks_;         // scratch
};

}  // namespace tarn::server
