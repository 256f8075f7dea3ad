#include "scheduler/leases/leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

constexpr std::uint64_t kSplitsMax = 1u << 22;  // of one set
constexpr std::uint64_t kSplitsPerWorker = 32;  // aimed at, where the job does not say
constexpr std::uint64_t kSplitBatchesMax = 64;  // likewise
constexpr std::uint64_t kEvaluationSplitsPerWorker = 4;

std::uint64_t DivideUp(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// A multiple of the batch that cuts the set into at most kSplitsMax pieces.
std::uint64_t Fit(std::uint64_t split_rows, std::uint64_t rows, std::uint64_t batch_rows) {
  const std::uint64_t least = std::max<std::uint64_t>(DivideUp(rows, kSplitsMax), 1);
  return DivideUp(std::max(split_rows, least), batch_rows) * batch_rows;
}

std::uint64_t TrainSplitRows(std::uint64_t wanted, std::uint64_t rows, std::uint64_t batch_rows,
                             std::uint64_t workers) {
  if (wanted != 0) return Fit(wanted, rows, batch_rows);
  const std::uint64_t batches = DivideUp(DivideUp(rows, batch_rows), workers * kSplitsPerWorker);
  return Fit(std::clamp<std::uint64_t>(batches, 1, kSplitBatchesMax) * batch_rows, rows, batch_rows);
}

}  // namespace

Leases::Leases(const Job& job, Clock start_clock)
    : ranks_(job.fleet.workers),
      batch_rows_(job.train.batch_rows),
      by_rank_(job.consistency.mode == ConsistencyMode::kBsp && job.consistency.apply == ApplyMode::kAggregated),
      shuffle_(job.data.shuffle),
      seed_(job.job.seed),
      split_rows_(job.data.split_rows),
      base_(start_clock),
      floor_(start_clock) {}

void Leases::Resume(const DataState& state) {
  epoch_ = state.epoch;
  base_ = state.base;
  floor_ = state.ceiling;
  resumed_ = state.trained;
  sizes_known_ = state.rows[0] != 0;
  if (!sizes_known_) return;
  std::copy(std::begin(state.rows), std::end(state.rows), rows_);
  split_rows_ = state.split_rows;
  train_ = MakeTrain(resumed_);
  train_.SetEarlierQuality(state.quality);
}

Status Leases::SetSizes(const std::uint64_t (&rows)[3]) {
  if (rows[0] == 0 && rows[1] == 0 && rows[2] == 0) return {};
  if (sizes_known_) {
    if (std::equal(std::begin(rows), std::end(rows), rows_)) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data: this worker sees {}, {} and {} rows of training, validation and test data, the "
                            "job has {}, {} and {}: all workers must read the same files",
                            rows[0], rows[1], rows[2], rows_[0], rows_[1], rows_[2]));
  }
  if (rows[0] == 0) return Fail(ErrorCode::kInvalidArgument, "data: the training set has no rows");
  std::copy(std::begin(rows), std::end(rows), rows_);
  ++revision_;
  split_rows_ = TrainSplitRows(split_rows_, rows_[0], batch_rows_, ranks_);
  sizes_known_ = true;
  train_ = MakeTrain({});
  return {};
}

Splits Leases::MakeTrain(const std::vector<std::uint64_t>& trained) const {
  return Splits({.purpose = LeasePurpose::kTrain,
                 .epoch = epoch_,
                 .rows = rows_[0],
                 .split_rows = split_rows_,
                 .batch_rows = batch_rows_,
                 .owners = by_rank_ ? ranks_ : 0,
                 .shuffle = shuffle_,
                 .seed = seed_},
                trained);
}

std::uint64_t Leases::EvaluationSplitRows(std::uint64_t rows) const {
  const std::uint64_t batches = DivideUp(DivideUp(rows, batch_rows_), ranks_ * kEvaluationSplitsPerWorker);
  return Fit(std::clamp<std::uint64_t>(batches, 1, kSplitBatchesMax) * batch_rows_, rows, batch_rows_);
}

void Leases::Join(Incarnation worker, WorkerRank rank, Clock join) {
  workers_[worker] = {.rank = rank, .told = join, .bound = join};
}

void Leases::End(Incarnation worker, const DataPosition& position, Clock end, bool take_back) {
  ++revision_;
  train_.Take(worker, position, holding_, take_back);
  evaluation_.Take(worker, position, false);
  workers_.erase(worker);
  // Its clocks up to `end` count: nothing of the next epoch may come before them.
  RaiseCeiling(end);
}

Clock Leases::ceiling() const {
  Clock ceiling = floor_;
  for (const auto& [id, worker] : workers_) ceiling = std::max(ceiling, worker.bound);
  if (by_rank_) ceiling = std::max(ceiling, base_ + train_.MostOwnedBatches());
  return ceiling;
}

LeaseReply Leases::Jump(Worker* worker, Clock clock) {
  worker->told = clock;
  worker->bound = std::max(worker->bound, clock);
  LeaseReply reply;
  reply.jump_to = clock;
  return reply;
}

std::optional<LeaseReply> Leases::AnswerJump(Incarnation id) {
  Worker& worker = workers_.at(id);
  if (worker.told >= ceiling()) return std::nullopt;
  return Jump(&worker, ceiling());
}

std::vector<LeaseGrant> Leases::Grant(Splits* splits, Incarnation id, Worker* worker, std::uint32_t want) {
  std::set<WorkerRank> live;
  for (const auto& [other, entry] : workers_) live.insert(entry.rank);
  const std::uint64_t open = splits->OpenLeases(id);
  std::uint64_t most = std::min<std::uint64_t>(
      want, limits::kLeasesPerWorkerMax - std::min<std::uint64_t>(open, limits::kLeasesPerWorkerMax));
  // Near the end nobody hoards what others could do.
  const bool owned = splits == &train_ && by_rank_;
  if (!owned) most = std::min(most, DivideUp(splits->free(), live.size()));

  std::vector<LeaseGrant> grants;
  const Clock limit = ceiling();
  while (grants.size() < most) {
    const auto split = splits->Next(worker->rank, live);
    if (!split) break;
    const std::uint64_t batches = splits == &train_ ? splits->BatchesLeft(*split) : 0;
    if (holding_ && by_rank_ && worker->bound + batches > limit) break;
    worker->bound = worker->bound + batches;
    last_lease_ = LeaseId(last_lease_.value + 1);
    ++revision_;
    grants.push_back(splits->Grant(*split, last_lease_, id));
  }
  return grants;
}

std::optional<LeaseReply> Leases::AnswerTraining(Incarnation id, std::uint32_t want) {
  if (!sizes_known_) return std::nullopt;
  Worker& worker = workers_.at(id);
  if (worker.told < base_) return Jump(&worker, base_);
  if (auto grants = Grant(&train_, id, &worker, want); !grants.empty()) {
    granted_any_ = true;
    LeaseReply reply;
    reply.grants = std::move(grants);
    return reply;
  }
  // With its hands full it waits, but there is work left for it.
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

void Leases::Hold() { holding_ = true; }

void Leases::Release() {
  holding_ = false;
  train_.Release();
}

void Leases::BeginEpoch(std::uint32_t epoch) {
  ++revision_;
  base_ = floor_ = ceiling();
  epoch_ = epoch;
  train_ = MakeTrain({});
  evaluation_ = Splits();
}

void Leases::BeginEvaluation(LeasePurpose purpose) {
  const std::uint64_t rows = rows_[static_cast<std::size_t>(purpose)];
  evaluation_ = Splits({.purpose = purpose,
                        .epoch = epoch_,
                        .rows = rows,
                        .split_rows = EvaluationSplitRows(rows),
                        .batch_rows = batch_rows_});
}

DataState Leases::Capture(std::vector<KeptLease>* kept, LeaseId* last) const {
  DataState state = Snapshot({}, true);
  if (sizes_known_) state.trained = train_.Capture(kept);
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
  std::copy(std::begin(rows_), std::end(rows_), state.rows);
  state.split_rows = split_rows_;
  state.epoch = epoch_;
  state.base = base_;
  state.ceiling = floor_;
  if (sizes_known_) {
    state.trained = train_.Trained(at, trust_done);
    state.quality = train_.quality();
  }
  return state;
}

std::uint64_t Leases::Samples(const Positions& at) const {
  const auto trained = train_.Trained(at, true);
  return std::uint64_t{epoch_} * rows_[0] + std::accumulate(trained.begin(), trained.end(), std::uint64_t{0});
}

}  // namespace tarn::scheduler
