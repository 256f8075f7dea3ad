// The view that every node receives: route map, workers, tables, the open proposal and the checkpoint order. Each
// change makes a new version. Entries of ended workers are removed when no shard needs them (rule M4).
//
//   CurrentView view(partition_bits, limits::kWorkerEntriesMax, &shards);
//   view.Form(endpoints);
//   view.SetOrder(order);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/message.h"
#include "scheduler/membership/nodes.h"
#include "scheduler/membership/shards.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

class CurrentView {
 public:
  // `shards` outlives this object. `workers_max`: maximum number of worker entries; beyond it, joining workers wait.
  CurrentView(std::uint32_t partition_bits, std::size_t workers_max, const Shards* shards);
  // Restores the saved state of a run with a log: workers that had not ended are fenced. Must be called before the
  // first view is made.
  void Restore(const SchedulerState& state);
  void Capture(SchedulerState* state) const;

  // Makes the first view, with a new route epoch. Distributes partitions evenly unless they already have owners.
  void Form(std::vector<std::string> endpoints);

  // Begins a new version. Call it before AddWorker, which may be called several times per version; other changes call
  // it themselves.
  void Change();
  void AddWorker(const WorkerNode& worker);
  void Fence(Incarnation worker);
  void End(Incarnation worker, Clock end);
  // The number of worker entries that can be added after removable ones are removed.
  std::size_t Room() const;

  void OpenProposal(bool drain);
  void CloseProposal();
  void SetOrder(const CheckpointOrder& order);
  // Sets the checkpoint to which logs may be truncated (rule L4).
  void SetWhole(CheckpointId id);
  // The first version with the newest complete checkpoint.
  ViewVersion whole_since() const { return whole_since_; }
  // Adds the table, or replaces the one with its id.
  void PutTable(const TableSpec& spec);
  // Sets the tables of the checkpoint from which the run continues. Must be called before the first view is made.
  void SetTables(std::vector<TableSpec> tables) { view_.tables = std::move(tables); }

  const View& get() const { return view_; }

 private:
  bool MayDrop(const WorkerEntry& entry) const;
  WorkerEntry* Entry(Incarnation worker);  // null: none

  std::uint32_t partition_bits_;
  std::size_t workers_max_;
  const Shards* shards_;
  View view_;
  std::map<Incarnation, ViewVersion> ended_;  // kEnded entries -> the first version in which they are kEnded
  ViewVersion whole_since_;
};

}  // namespace tarn::scheduler
