#include "sim/sim_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::sim {
namespace {

constexpr std::uint64_t kDenseRows = 40;
constexpr std::uint32_t kSparseDim = 2;
constexpr std::uint32_t kDenseDim = 3;

TableSpec SparseTable(const Scenario& scenario) {
  TableSpec spec;
  spec.name = "counts";
  spec.kind = TableKind::kSparse;
  spec.dim = kSparseDim;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1.0f;
  spec.consistency = scenario.job.consistency;
  return spec;
}

TableSpec DenseTable(const Scenario& scenario) {
  TableSpec spec = SparseTable(scenario);
  spec.name = "layer";
  spec.kind = TableKind::kDense;
  spec.dim = kDenseDim;
  spec.rows = kDenseRows;
  spec.initializer = {InitializerKind::kNormal, 0, 0.1f};
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.optimizer.learning_rate = 0.01f;
  return spec;
}

}  // namespace

SimWorker::SimWorker(const Scenario& scenario, worker::ClientOptions options, Oracle* oracle, Schedule schedule)
    : scenario_(scenario),
      client_(options),
      oracle_(oracle),
      schedule_(std::move(schedule)),
      rng_(Mix64(options.nonce ^ 0x776b)) {}

void SimWorker::Start(TimeUs now, Outbox* out) { client_.Start(now, out); }

void SimWorker::Settle(TimeUs now, Outbox* out) {
  client_.Settle(now, out);
  Advance(now, out);
}

void SimWorker::OnTimer(TimeUs now, Outbox* out) {
  client_.OnTimer(now, out);
  Advance(now, out);
}

void SimWorker::Advance(TimeUs now, Outbox* out) {
  for (worker::ClientEvent& event : client_.TakeEvents()) OnEvent(std::move(event), now, out);
  if (client_.state() != worker::ClientState::kRunning) return;
  if (!tables_asked_) OpenTables(now, out);
  if (tables_.size() < 2) return;
  if (!model_ && tables_[0].push_codec == ValueCodec::kTopK) StartModel();
  Fill(now, out);
  AskForWork(now, out);
}

// From what it had kept, if it goes on from a checkpoint.
void SimWorker::StartModel() {
  model_.emplace(tables_[0]);
  if (client_.welcome().blob_bytes != 0) model_->Start(oracle_->kept().Take(WorkerRank(client_.welcome().rank)));
  oracle_->kept().OnKept(client_.welcome().incarnation, client_.clock(), model_->kept());
}

std::size_t SimWorker::SectionsOf(const std::map<Key, float>& sent) const {
  const Positioner position(tables_[0], TableSalt(scenario_.job.job.seed, tables_[0].name));
  std::set<PartitionId> partitions;
  for (const auto& [key, count] : sent)
    partitions.insert(PartitionOf(position(key), client_.view().routes.partition_bits));
  return partitions.size();
}

void SimWorker::OpenTables(TimeUs now, Outbox* out) {
  tables_asked_ = true;
  next_clock_ = client_.clock();
  planner_ = std::make_unique<worker::Planner>(client_.view().routes.partition_bits);
  client_.CreateTable(SparseTable(scenario_), now, out);
  client_.CreateTable(DenseTable(scenario_), now, out);
}

void SimWorker::OnEvent(worker::ClientEvent event, TimeUs now, Outbox* out) {
  if (auto* table = std::get_if<worker::TableReady>(&event)) {
    if (table->code != ErrorCode::kOk) oracle_->Fail("a table was refused: " + table->message);
    tables_.push_back(table->spec);
    std::sort(tables_.begin(), tables_.end(), [](const TableSpec& a, const TableSpec& b) { return a.name < b.name; });
  } else if (auto* pull = std::get_if<worker::PullDone>(&event)) {
    if (early_ && early_->request == pull->request) early_->done = true;
    for (Batch& batch : batches_) {
      auto it = batch.pull_of.find(pull->request);
      if (it == batch.pull_of.end()) continue;
      CheckPull(batch, it->second, *pull);
      batch.waiting.erase(pull->request);
      if (it->second == 0) PullAgain(&batch, now, out);
    }
  } else if (auto* push = std::get_if<worker::PushDone>(&event)) {
    if (auto it = pushes_.find(push->request); it != pushes_.end()) {
      oracle_->OnPushAcked(it->second.first, it->second.second);
      pushes_.erase(it);
    }
    if (auto it = layer_pushes_.find(push->request); it != layer_pushes_.end()) {
      oracle_->OnOtherPushAcked(it->second);
      layer_pushes_.erase(it);
    }
  } else if (auto* tick = std::get_if<worker::TickDone>(&event)) {
    while (!done_at_tick_.empty() && done_at_tick_.begin()->first <= tick->clock.value) {
      done_.push_back(done_at_tick_.begin()->second);
      done_at_tick_.erase(done_at_tick_.begin());
    }
  } else if (auto* leases = std::get_if<worker::LeasesGranted>(&event)) {
    asked_ = false;
    for (const LeaseGrant& grant : leases->reply.grants) leases_.push_back(grant);
    if (leases->reply.finished) finished_ = true;
    if (leases->reply.grants.empty() && !finished_) jump_to_ = leases->reply.jump_to;
  } else if (auto* failed = std::get_if<worker::RequestFailed>(&event)) {
    oracle_->Fail("a request failed: " + ToString(failed->error));
  }
}

void SimWorker::NextBatch(Batch* batch) {
  const LeaseGrant& lease = leases_.front();
  if (lease_offset_ == 0) lease_offset_ = lease.skip_rows;
  batch->lease = lease;
  batch->first_row = lease.first_row + lease_offset_;
  batch->rows = std::min<std::uint64_t>(scenario_.job.train.batch_rows, lease.rows - lease_offset_);
  lease_offset_ += batch->rows;
  batch->last_of_lease = lease_offset_ >= lease.rows;
  if (batch->last_of_lease) {
    leases_.pop_front();
    lease_offset_ = 0;
  }
}

void SimWorker::Fill(TimeUs now, Outbox* out) {
  while (!leases_.empty() && batches_.size() < scenario_.depth) {
    // Evaluation runs alone: its pulls are at the clock that everyone stands at.
    const bool train = leases_.front().purpose == LeasePurpose::kTrain;
    if (!batches_.empty() && (!train || batches_.back().lease.purpose != LeasePurpose::kTrain)) break;
    Batch& batch = batches_.emplace_back();
    NextBatch(&batch);
    StartPulls(&batch, now, out);
  }
  if (batches_.empty()) return;
  Batch& front = batches_.front();
  if (!front.computing && front.waiting.empty() && !(early_ && early_->clock == front.clock && !early_->done)) {
    front.computing = true;
    schedule_(100 + TimeUs(rng_.Below(std::uint64_t(scenario_.compute_max_us))));
  }
}

void SimWorker::StartPulls(Batch* batch, TimeUs now, Outbox* out) {
  std::vector<Key> row_keys;
  for (std::uint64_t r = batch->first_row; r < batch->first_row + batch->rows; ++r) {
    KeysOfRow(scenario_, r, &row_keys);
    batch->keys.insert(batch->keys.end(), row_keys.begin(), row_keys.end());
  }
  std::vector<Key> dense(kDenseRows);
  for (Key i = 0; i < kDenseRows; ++i) dense[i] = i;
  const std::uint64_t seed = scenario_.job.job.seed;
  const TableSpec& sparse_spec = tables_[0];
  const TableSpec& dense_spec = tables_[1];
  planner_->Make(sparse_spec.id, kSparseDim, Positioner(sparse_spec, TableSalt(seed, sparse_spec.name)), batch->keys,
                 &batch->sparse);
  planner_->Make(dense_spec.id, kDenseDim, Positioner(dense_spec, TableSalt(seed, dense_spec.name)), dense,
                 &batch->dense);
  const bool train = batch->lease.purpose == LeasePurpose::kTrain;
  batch->clock = train ? std::max(next_clock_, client_.clock()) : client_.clock();
  if (train) next_clock_ = batch->clock + 1;
  if (evaluation_.Before(train, batch->clock)) client_.DropKeptRows();
  batch->mark = oracle_->records();
  if (scenario_.tier_bytes != 0 && batch->first_row % 2 == 0) client_.Prefetch(batch->sparse, now, out);
  const RequestId sparse = client_.Pull(batch->sparse, batch->clock, now, out);
  batch->pull_of[sparse] = 0;
  batch->waiting.insert(sparse);
  if (early_ && train && early_->clock == batch->clock) return;
  const RequestId layer = client_.Pull(batch->dense, batch->clock, now, out);
  batch->pull_of[layer] = 1;
  batch->waiting.insert(layer);
}

// Programs may read rows without pushing them.
void SimWorker::PullAgain(Batch* batch, TimeUs now, Outbox* out) {
  if (!scenario_.reads_again || batch->mark_again != 0 || oracle_->records() == 0) return;
  batch->mark_again = oracle_->records();
  const RequestId again = client_.Pull(batch->sparse, batch->clock, now, out);
  batch->pull_of[again] = 2;
  batch->waiting.insert(again);
}

void SimWorker::CheckPull(const Batch& batch, int which, const worker::PullDone& done) {
  const worker::Plan& plan = which == 1 ? batch.dense : batch.sparse;
  if (done.values.size() != plan.keys.size() * plan.dim * sizeof(float))
    return oracle_->Fail("a pull returned the wrong number of bytes");
  oracle_->CheckStaleness(which == 1 ? scenario_.layer : scenario_.counts, done.staleness);
  if (which == 1) return;
  const bool settled = batch.lease.purpose != LeasePurpose::kTrain && oracle_->cohorts().nobody_died();
  const auto values = done.values.as<float>();
  for (std::size_t i = 0; i < plan.keys.size(); ++i) {
    oracle_->CheckValue(client_.welcome().incarnation, batch.clock, plan.keys[i], values[i * kSparseDim],
                        which == 0 ? batch.mark : batch.mark_again, settled);
    if (values[i * kSparseDim] != values[i * kSparseDim + 1] && scenario_.counts_row_codec == ValueCodec::kFp32)
      oracle_->Fail("a row was torn");
  }
}

void SimWorker::OnCompute(TimeUs now, Outbox* out) {
  if (batches_.empty() || client_.state() != worker::ClientState::kRunning) return;
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  const std::uint64_t spared = client_.counters().cache_hits + client_.counters().combined_pushes;
  oracle_->OnSpared(spared - std::exchange(spared_, spared));
  if (batch.lease.purpose == LeasePurpose::kTrain) {
    FinishTrain(&batch, now, out);
  } else if (batch.last_of_lease) {
    LeaseDone done{batch.lease.lease, {}};
    for (std::uint64_t i = 0; i < batch.lease.rows; ++i) done.quality.AddBinary(0.1f * float(i % 7) - 0.2f, i % 3 == 0);
    done.quality.AddLoss(0.7 * double(batch.lease.rows));
    done_.push_back(done);
  }
  Advance(now, out);
}

void SimWorker::FinishTrain(Batch* batch, TimeUs now, Outbox* out) {
  if (batch->clock != client_.clock()) oracle_->Fail("the loop's clock and the client's differ");
  // Gradient of plain SGD with rate 1: minus the number of occurrences.
  Buffer gradients = Buffer::Allocate(batch->sparse.keys.size() * kSparseDim * sizeof(float));
  auto g = gradients.as_mutable<float>();
  std::fill(g.begin(), g.end(), 0.0f);
  for (std::uint32_t index : batch->sparse.index)
    for (std::uint32_t d = 0; d < kSparseDim; ++d) g[index * kSparseDim + d] -= 1.0f;
  std::map<Key, float> sent;
  if (model_) {
    std::vector<float> counts(batch->sparse.keys.size(), 0);
    for (std::uint32_t index : batch->sparse.index) ++counts[index];
    sent = model_->Push(batch->sparse.keys, std::move(counts), batch->clock);
  }
  const std::size_t record = oracle_->OnPushIssued(client_.welcome().incarnation, batch->clock, batch->lease.epoch,
                                                   batch->first_row, batch->rows, model_ ? &sent : nullptr);
  const RequestId push = client_.Push(batch->sparse, gradients, batch->clock, now, out);
  pushes_[push] = {record, model_ ? SectionsOf(sent) : batch->sparse.runs.size()};
  Buffer layer = Buffer::Allocate(kDenseRows * kDenseDim * sizeof(float));
  auto l = layer.as_mutable<float>();
  for (std::size_t i = 0; i < l.size(); ++i) l[i] = 0.01f * float((i * 7 + batch->first_row) % 13) - 0.05f;
  position_ = {batch->lease.lease, batch->first_row + batch->rows - batch->lease.first_row};
  RequestId layer_push;
  if (scenario_.push_pull && scenario_.depth == 1) {
    const auto ids = client_.PushPull(batch->dense, layer, batch->clock, position_, now, out);
    early_ = EarlyPull{ids.pull, client_.clock(), false};
    layer_push = ids.push;
  } else {
    layer_push = client_.Push(batch->dense, layer, batch->clock, now, out);
    client_.Tick(position_, now, out);
  }
  layer_pushes_[layer_push] = batch->dense.runs.size();
  if (model_) oracle_->kept().OnKept(client_.welcome().incarnation, client_.clock(), model_->kept());
  if (batch->last_of_lease) {
    LeaseDone done{batch->lease.lease, {}};
    for (std::uint64_t i = 0; i < batch->lease.rows; ++i) done.quality.AddBinary(float(i % 5) - 2.0f, i % 4 == 0);
    done.quality.AddLoss(0.9 * double(batch->lease.rows));
    done_at_tick_[client_.clock().value] = done;
  }
}

void SimWorker::AskForWork(TimeUs now, Outbox* out) {
  if (asked_ || leaving_) return;
  const bool drained = leases_.empty() && batches_.empty();
  if (drained && jump_to_) {
    if (*jump_to_ > client_.clock()) client_.TickTo(*jump_to_, position_, now, out);
    next_clock_ = client_.clock();
    jump_to_.reset();
  }
  if (finished_) {
    if (!drained || !done_at_tick_.empty()) return;
    leaving_ = true;
    client_.Leave(now, out);
    return;
  }
  // Ahead of need while there is one lease left, and when there is nothing left to do.
  const bool ahead = leases_.size() <= 1 && !jump_to_ && !drained;
  const bool tells = scenario_.tells_at_once && !done_.empty() && !drained && !jump_to_;
  if (!ahead && !tells && !(drained && done_at_tick_.empty())) return;
  LeaseRequest request;
  request.want = ahead || drained ? 2 : 1;
  request.done = std::move(done_);
  done_.clear();
  request.rows[0] = scenario_.train_rows;
  request.rows[1] = scenario_.valid_rows;
  request.rows[2] = scenario_.test_rows;
  asked_ = true;
  client_.RequestLeases(std::move(request), now, out);
}

std::string SimWorker::Describe() const {
  return fmt::format(
      "state {} clock {} leases {} batches {} (front waits for {} pulls) unacked pushes {} asked {} finished {}",
      int(client_.state()), client_.clock().value, leases_.size(), batches_.size(),
      batches_.empty() ? 0 : batches_.front().waiting.size(), pushes_.size(), asked_, finished_);
}

}  // namespace tarn::sim
