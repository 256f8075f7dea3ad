#include "scheduler/membership/current_view.h"

#include <algorithm>
#include <utility>

namespace tarn::scheduler {

CurrentView::CurrentView(std::uint32_t partition_bits, std::size_t workers_max, const Shards* shards)
    : partition_bits_(partition_bits), workers_max_(workers_max), shards_(shards) {
  view_.routes.partition_bits = partition_bits;
}

void CurrentView::Restore(const SchedulerState& state) {
  view_.version = state.version;
  view_.routes.epoch = state.epoch;
  view_.routes.owners = state.owners;
  view_.workers = state.workers;
  view_.proposal.id = state.proposal;
  view_.whole = state.whole;
  for (WorkerEntry& entry : view_.workers)
    if (entry.state != WorkerState::kEnded) entry.state = WorkerState::kFencing;
}

void CurrentView::Capture(SchedulerState* state) const {
  state->version = view_.version;
  state->epoch = view_.routes.epoch;
  state->owners = view_.routes.owners;
  state->workers = view_.workers;
  state->proposal = view_.proposal.id;
}

void CurrentView::Form(std::vector<std::string> endpoints) {
  view_.routes.epoch = Epoch(view_.routes.epoch.value + 1);
  if (view_.routes.owners.empty())
    view_.routes.owners = EvenOwners(partition_bits_, static_cast<std::uint32_t>(endpoints.size()));
  view_.routes.endpoints = std::move(endpoints);
  Change();
  for (const WorkerEntry& entry : view_.workers)
    if (entry.state == WorkerState::kEnded) ended_[entry.incarnation] = view_.version;
}

void CurrentView::Change() {
  std::erase_if(view_.workers, [&](const WorkerEntry& entry) {
    if (!MayDrop(entry)) return false;
    ended_.erase(entry.incarnation);
    return true;
  });
  view_.version = ViewVersion(view_.version.value + 1);
}

void CurrentView::AddWorker(const WorkerNode& worker) {
  WorkerEntry entry;
  entry.rank = worker.rank;
  entry.incarnation = worker.incarnation;
  entry.join = worker.join;
  view_.workers.push_back(entry);
  std::ranges::sort(view_.workers, {}, [](const WorkerEntry& e) { return std::pair(e.rank, e.incarnation); });
}

WorkerEntry* CurrentView::Entry(Incarnation worker) {
  const auto it = std::ranges::find(view_.workers, worker, &WorkerEntry::incarnation);
  return it == view_.workers.end() ? nullptr : &*it;
}

void CurrentView::Fence(Incarnation worker) {
  Change();
  Entry(worker)->state = WorkerState::kFencing;
}

void CurrentView::End(Incarnation worker, Clock end) {
  Change();
  WorkerEntry* entry = Entry(worker);
  entry->state = WorkerState::kEnded;
  entry->end = end;
  ended_[worker] = view_.version;
}

bool CurrentView::MayDrop(const WorkerEntry& entry) const {
  const auto it = ended_.find(entry.incarnation);
  return it != ended_.end() && shards_->Confirmed(it->second) && shards_->MinClock() >= entry.end;
}

std::size_t CurrentView::Room() const {
  const auto stay = static_cast<std::size_t>(
      std::ranges::count_if(view_.workers, [&](const WorkerEntry& entry) { return !MayDrop(entry); }));
  return workers_max_ - std::min(workers_max_, stay);
}

void CurrentView::OpenProposal(bool drain) {
  Change();
  ++view_.proposal.id;
  view_.proposal.open = true;
  view_.proposal.drain = drain;
}

void CurrentView::CloseProposal() {
  Change();
  view_.proposal.open = view_.proposal.drain = false;
}

void CurrentView::SetOrder(const CheckpointOrder& order) {
  Change();
  view_.checkpoint = order;
}

void CurrentView::SetWhole(CheckpointId id) {
  Change();
  view_.whole = id;
  whole_since_ = view_.version;
}

void CurrentView::PutTable(const TableSpec& spec) {
  Change();
  const auto it = std::ranges::find(view_.tables, spec.id, &TableSpec::id);
  if (it == view_.tables.end())
    view_.tables.push_back(spec);
  else
    *it = spec;
}

}  // namespace tarn::scheduler
