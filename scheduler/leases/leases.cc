#include "scheduler/leases/leases.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

std::uint64_t DivideUp(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

Leases::Leases(const Job& job, Clock start_clock) : data_(job), base_(start_clock), floor_(start_clock) {}

void Leases::Resume(const DataState& state, bool restores) {
  epoch_ = state.epoch;
  base_ = state.base;
  floor_ = state.ceiling;
  data_.Resume(state);
  if (!data_.known()) return;
  // In the state of the scheduler, leases may have trained rows that `trained` does not count.
  const bool untrained = !restores && std::ranges::all_of(state.trained, [](std::uint64_t rows) { return rows == 0; });
  if (untrained) data_.ChooseSplitRows();
  train_ = data_.MakeTraining(epoch_, untrained ? std::vector<std::uint64_t>() : state.trained);
  train_.SetEarlierQuality(state.quality);
}

Status Leases::SetSizes(const SetRows& rows) {
  const bool known = data_.known();
  TARN_RETURN_IF_ERROR(data_.Set(rows));
  if (known || !data_.known()) return {};
  ++revision_;
  train_ = data_.MakeTraining(epoch_, {});
  return {};
}

void Leases::Join(Incarnation worker, WorkerRank rank, Clock join) {
  workers_[worker] = {.rank = rank, .sent = join, .own = join};
}

void Leases::End(Incarnation worker, const DataPosition& position, Clock end, bool take_back) {
  ++revision_;
  train_.Take(worker, position, holding_, take_back);
  evaluation_.Take(worker, position, false);
  workers_.erase(worker);
  // Its clocks up to `end` count, so the next epoch must begin after them.
  RaiseCeiling(end);
}

Clock Leases::ceiling() const {
  Clock ceiling = floor_;
  for (const auto& [id, worker] : workers_) ceiling = std::max(ceiling, worker.bound());
  if (data_.by_rank()) ceiling = std::max(ceiling, base_ + train_.MostOwnedBatches());
  return ceiling;
}

LeaseReply Leases::Jump(Worker* worker, Clock clock) {
  worker->sent = clock;
  LeaseReply reply;
  reply.jump_to = clock;
  return reply;
}

std::optional<LeaseReply> Leases::AnswerJump(Incarnation id) {
  Worker& worker = workers_.at(id);
  if (worker.sent >= ceiling()) return std::nullopt;
  return Jump(&worker, ceiling());
}

bool Leases::AwaitsTurn(Incarnation id) const {
  return train_.free() + evaluation_.free() > 0 && !MayGrant(workers_.at(id).rank);
}

std::vector<LeaseGrant> Leases::Grant(Splits* splits, Incarnation id, Worker* worker, std::uint32_t want) {
  std::set<WorkerRank> live;
  for (const auto& [other, entry] : workers_) live.insert(entry.rank);
  const std::uint64_t open = splits->OpenLeases(id);
  std::uint64_t most = std::min<std::uint64_t>(
      want, limits::kLeasesPerWorkerMax - std::min<std::uint64_t>(open, limits::kLeasesPerWorkerMax));
  // Near the end of a pass the remaining splits are shared evenly.
  const bool owned = splits == &train_ && data_.by_rank();
  if (!owned) most = std::min(most, DivideUp(splits->free(), live.size()));

  std::vector<LeaseGrant> grants;
  const Clock limit = ceiling();
  while (grants.size() < most && MayGrant(worker->rank)) {
    const auto split = splits->Next(worker->rank, live);
    if (!split) break;
    const std::uint64_t batches = splits == &train_ ? splits->BatchesLeft(*split, worker->rank) : 0;
    if (holding_ && data_.by_rank() && worker->bound() + batches > limit) break;
    worker->own = worker->bound() + batches;
    last_lease_ = LeaseId(last_lease_.value + 1);
    ++revision_;
    grants.push_back(splits->Grant(*split, last_lease_, id, worker->rank));
  }
  return grants;
}

std::optional<LeaseReply> Leases::AnswerTraining(Incarnation id, std::uint32_t want) {
  if (!data_.known()) return std::nullopt;
  Worker& worker = workers_.at(id);
  if (worker.sent < base_) return Jump(&worker, base_);
  if (auto grants = Grant(&train_, id, &worker, want); !grants.empty()) {
    granted_any_ = true;
    LeaseReply reply;
    reply.grants = std::move(grants);
    return reply;
  }
  if (AwaitsTurn(id)) return std::nullopt;
  // The worker has the maximum number of leases, and may get more later.
  if (train_.OpenLeases(id) >= limits::kLeasesPerWorkerMax) return std::nullopt;
  return AnswerJump(id);
}

std::optional<LeaseReply> Leases::AnswerEvaluation(Incarnation id, std::uint32_t want) {
  if (auto jump = AnswerJump(id)) return jump;
  Worker& worker = workers_.at(id);
  auto grants = Grant(&evaluation_, id, &worker, want);
  if (grants.empty()) return std::nullopt;
  LeaseReply reply;
  reply.grants = std::move(grants);
  return reply;
}

void Leases::Done(Incarnation worker, const LeaseDone& done) {
  ++revision_;
  if (!train_.Done(worker, done)) evaluation_.Done(worker, done);
}

void Leases::NoteSkipped(Incarnation id, std::uint64_t clocks) {
  const auto it = workers_.find(id);
  if (it == workers_.end() || clocks <= it->second.skipped) return;
  Worker& worker = it->second;
  worker.own = worker.own + (clocks - std::exchange(worker.skipped, clocks));
}

void Leases::Release() {
  holding_ = false;
  train_.Release();
}

void Leases::BeginEpoch(std::uint32_t epoch) {
  ++revision_;
  base_ = floor_ = ceiling();
  epoch_ = epoch;
  data_.ChooseSplitRows();
  train_ = data_.MakeTraining(epoch_, {});
  evaluation_ = Splits();
}

void Leases::BeginEvaluation(LeasePurpose purpose) { evaluation_ = data_.MakeEvaluation(purpose, epoch_); }

DataState Leases::Capture(std::vector<KeptLease>* kept, LeaseId* last) const {
  DataState state = Snapshot({}, true);
  if (data_.known()) state.trained = train_.Capture(kept);
  *last = last_lease_;
  return state;
}

void Leases::Restore(const std::vector<KeptLease>& kept, LeaseId last) {
  train_.Restore(kept);
  last_lease_ = last;
  granted_any_ = last.value != 0;
}

DataState Leases::Snapshot(const Positions& at, bool trust_done) const {
  DataState state;
  data_.Fill(&state);
  state.epoch = epoch_;
  state.base = base_;
  state.ceiling = floor_;
  if (data_.known()) {
    state.trained = train_.Trained(at, trust_done);
    state.quality = train_.quality();
  }
  return state;
}

std::uint64_t Leases::Samples(const Positions& at) const {
  const auto trained = train_.Trained(at, true);
  return epoch_ * data_.rows(LeasePurpose::kTrain) + std::accumulate(trained.begin(), trained.end(), std::uint64_t{0});
}

}  // namespace tarn::scheduler
