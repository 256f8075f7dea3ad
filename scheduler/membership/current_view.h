// The view that every node gets: route map, workers, tables, the open proposal and the order to cut a checkpoint. Each
// change makes a new version. Entries of workers that have ended leave the view once no shard needs them (rule M4).
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
  // `shards` outlives it. workers_max: entries of workers; beyond it, joiners wait.
  CurrentView(std::uint32_t partition_bits, std::size_t workers_max, const Shards* shards);
  // What a run with a log kept: workers that had not ended are being fenced now. Before any other call.
  void Restore(const SchedulerState& state);
  void Capture(SchedulerState* state) const;

  // The first view: of a new epoch, with partitions spread evenly unless they have owners already.
  void Form(std::vector<std::string> endpoints);

  // Begins a new version; for AddWorker, which may be called several times for one version. All others call it.
  void Change();
  void AddWorker(const WorkerNode& worker);
  void Fence(Incarnation worker);
  void End(Incarnation worker, Clock end);
  // Entries that there is room for, once those that may go are gone.
  std::size_t Room() const;

  void OpenProposal(bool drain);
  void CloseProposal();
  void SetOrder(const CheckpointOrder& order);
  // Logs may be cut back to this checkpoint (rule L4).
  void SetWhole(CheckpointId id);
  // The version that named the newest whole checkpoint first.
  ViewVersion whole_since() const { return whole_since_; }
  // Adds the table, or replaces the one of its id.
  void PutTable(const TableSpec& spec);
  // Tables of the checkpoint that the run continues from. Before any other call but Restore.
  void SetTables(std::vector<TableSpec> tables) { view_.tables = std::move(tables); }

  const View& get() const { return view_; }

 private:
  bool MayDrop(const WorkerEntry& entry) const;
  WorkerEntry* Entry(Incarnation worker);

  std::uint32_t partition_bits_;
  std::size_t workers_max_;
  const Shards* shards_;
  View view_;
  std::map<Incarnation, ViewVersion> ended_;  // entries kEnded -> the first version that has them so
  ViewVersion whole_since_;
};

}  // namespace tarn::scheduler
