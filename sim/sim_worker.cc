#include "sim/sim_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/codec/worker_blob.h"
#include "core/error.h"

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
  spec.optimizer.kind = scenario.counts_rule;
  spec.optimizer.learning_rate = 1.0f;
  if (scenario.counts_rule == "dc_asgd") spec.optimizer.options["dc_lambda"] = 0.0f;
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
  spec.optimizer = {.kind = scenario.layer_rule, .learning_rate = 0.01f};
  return spec;
}

}  // namespace

SimWorker::SimWorker(const Scenario& scenario, const worker::ClientOptions& options, Oracle* oracle, Schedule schedule)
    : scenario_(scenario),
      client_(options),
      oracle_(oracle),
      compute_{std::move(schedule), SplitMix(Mix64(options.nonce ^ 0x776b))} {}

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
  HandleAcknowledged();
  if (client_.state() != worker::ClientState::kRunning) return;
  if (!tables_.asked) OpenTables(now, out);
  if (!tables_.ready()) return;
  if (!model_ && tables_.sparse().push_codec == ValueCodec::kTopK) StartModel();
  AdvanceProgram(now, out);
  Fill(now, out);
  RequestLeases(now, out);
  AdvanceProgram(now, out);
}

// Saves the program's state if a checkpoint requests it: after each tick, and while the worker waits for leases.
void SimWorker::AdvanceProgram(TimeUs now, Outbox* out) {
  if (!scenario_.program_state) return;
  if (!std::exchange(program_.begun, true)) {
    program_.state.clock = client_.clock().value;
    oracle_->programs().OnTick(client_.welcome().incarnation, program_.state);
    client_.KeepState(now, out);
    client_.ReadBlobOf(WorkerRank(0), this, now, out);
  }
  const bool idle = leases_.asked() && leases_.empty() && batches_.empty() && !pushed_;
  for (;;) {
    const CheckpointId wanted = std::exchange(program_.wanted, CheckpointId(0));
    if (wanted.value != 0) {
      client_.Save(wanted, EncodedState(wanted), now, out);
      program_.ticked = true;  // calls AwaitSave again
    }
    if (program_.waits || (!program_.ticked && !idle)) return;
    program_.waits = true;
    program_.ticked = false;
    client_.AwaitSave(this, now, out);
    if (program_.wanted.value == 0) return;
  }
}

void SimWorker::Done(CheckpointId wanted) {
  program_.waits = false;
  program_.wanted = wanted;
}

std::vector<Buffer> SimWorker::EncodedState(CheckpointId checkpoint) const {
  const BlobChunk head{.checkpoint = checkpoint,
                       .rank = WorkerRank(client_.welcome().rank),
                       .clock = client_.clock(),
                       .rows = {},
                       .state = {}};
  return EncodeProgramState(head, std::as_bytes(std::span(&program_.state, 1)), 1'000);
}

// Compares rank 0's saved state with the oracle's. A worker that joins after the resume reads none.
void SimWorker::Done(Buffer blob) {
  Buffer saved;
  if (!blob.empty()) {
    auto read = ReadProgramState({blob.data(), blob.size()}, {"the blob of rank 0", CheckpointId(0), WorkerRank(0)});
    if (!read) return oracle_->Fail(read.error().message);
    saved = *std::move(read);
  }
  const Buffer expected = client_.welcome().blobs.empty() ? Buffer() : oracle_->programs().Saved(WorkerRank(0));
  if (!std::ranges::equal(saved.as<std::byte>(), expected.as<std::byte>()))
    oracle_->Fail("the program state that a worker read differs from the one in the checkpoint");
}

// Must be called after each requested tick. `batch`: the batch trained in that clock, or null.
void SimWorker::RecordTick(const Batch* batch) {
  if (!scenario_.program_state) return;
  program_.ticked = true;
  program_.state.clock = client_.clock().value;
  if (batch != nullptr) {
    const auto& [lease, first_row, rows, last_of_lease] = batch->rows;
    ++program_.state.batches;
    program_.state.epoch = lease.epoch;
    program_.state.first_row = lease.first_row;
    program_.state.rows = first_row + rows - lease.first_row;
  }
  oracle_->programs().OnTick(client_.welcome().incarnation, program_.state);
}

// Handles acknowledged ticks and pushes.
void SimWorker::HandleAcknowledged() {
  leases_.OnAcked(client_.acked_clock());
  while (!pushes_.empty() && pushes_.front().done()) pushes_.pop_front();
}

// Starts from the worker's residuals in the checkpoint, if it resumes from one.
void SimWorker::StartModel() {
  model_.emplace(tables_.sparse());
  if (!client_.welcome().blobs.empty()) model_->Start(oracle_->residuals().Take(WorkerRank(client_.welcome().rank)));
  oracle_->residuals().OnResiduals(client_.welcome().incarnation, client_.clock(), model_->residuals());
}

std::size_t SimWorker::SectionsOf(const std::map<Key, float>& sent) const {
  const Positioner position(tables_.sparse(), TableSalt(scenario_.job.job.seed, tables_.sparse().name));
  std::set<PartitionId> partitions;
  for (const auto& [key, count] : sent)
    partitions.insert(PartitionOf(position(key), client_.view().routes.partition_bits));
  return partitions.size();
}

void SimWorker::OpenTables(TimeUs now, Outbox* out) {
  tables_.asked = true;
  next_clock_ = client_.clock();
  tables_.planner = std::make_unique<worker::Planner>(client_.view().routes.partition_bits);
  client_.CreateTable(SparseTable(scenario_), this, now, out);
  client_.CreateTable(DenseTable(scenario_), this, now, out);
}

void SimWorker::Done(TableSpec table) {
  tables_.specs.push_back(std::move(table));
  std::ranges::sort(tables_.specs, {}, &TableSpec::name);
}

void SimWorker::Done(LeaseReply reply) { leases_.OnReply(reply); }

void SimWorker::PushAcked::Done() {
  done_ = true;
  if (change_) worker_->oracle_->changes().OnAcked(*change_);
  if (record_) worker_->oracle_->counts().OnAcked(*record_);
  worker_->oracle_->OnPushAcked(sections_);
}

worker::Completion<>* SimWorker::Acknowledged(std::optional<std::size_t> record, std::size_t sections) {
  return &pushes_.emplace_back(this, record, sections);
}

int SimWorker::unacked_pushes() const {
  return static_cast<int>(std::ranges::count_if(pushes_, [](const PushAcked& push) { return !push.done(); }));
}

SimWorker::BatchPull::BatchPull(SimWorker* worker, Batch* batch, Which which, std::size_t mark)
    : worker_(worker), batch_(batch), which_(which), mark_(mark), rows_(batch->PlanOf(which)) {}

void SimWorker::BatchPull::Done(std::uint64_t staleness) {
  done_ = true;
  worker_->CheckPull(*batch_, *this, staleness);
}

void SimWorker::Fill(TimeUs now, Outbox* out) {
  while (!leases_.empty() && batches_.size() < scenario_.depth) {
    // An evaluation batch is pulled at the current clock, so no training batch may be in progress, which would tick.
    const bool train = leases_.purpose() == LeasePurpose::kTrain;
    if (pushed_ && !train) break;
    if (!batches_.empty() && (!train || !batches_.back().train())) break;
    Batch& batch = batches_.emplace_back();
    batch.rows = leases_.Next();
    StartPulls(&batch, now, out);
  }
  if (batches_.empty()) return;
  // Also batches that were just started: all their rows may have been in the cache.
  for (Batch& batch : batches_)
    if (batch.sparse_pull().done() && !std::exchange(batch.read_once, true)) PullAgain(&batch, now, out);
  Batch& front = batches_.front();
  if (!front.computing && front.waiting() == 0 && !pushed_ && !program_.busy() &&
      (early_.empty() || !early_.back().Delays(front.clock))) {
    front.computing = true;
    compute_.Begin(scenario_.compute_max_us);
  }
}

void SimWorker::StartPulls(Batch* batch, TimeUs now, Outbox* out) {
  std::vector<Key> keys, row_keys;
  for (std::uint64_t r = batch->rows.first; r < batch->rows.first + batch->rows.count; ++r) {
    KeysOfRow(scenario_, r, &row_keys);
    keys.insert(keys.end(), row_keys.begin(), row_keys.end());
  }
  std::vector<Key> dense(kDenseRows);
  for (Key i = 0; i < kDenseRows; ++i) dense[i] = i;
  batch->sparse = PlanOf(tables_.sparse(), keys);
  batch->dense = PlanOf(tables_.dense(), dense);
  const bool train = batch->train();
  batch->clock = train ? std::max(next_clock_, client_.clock()) : client_.clock();
  if (train) next_clock_ = batch->clock + 1;
  if (evaluation_.Before(train, batch->clock)) client_.DropCachedRows();
  if (scenario_.tier_bytes != 0 && batch->rows.first % 2 == 0) client_.Prefetch(batch->sparse, now, out);
  std::vector<worker::TableToPull> pulls{PullOf(batch, Which::kSparse)};
  if (scenario_.changes) {
    const Welcome& welcome = client_.welcome();
    batch->changed = PlanOf(tables_.sparse(),
                            oracle_->changes().KeysToRead(WorkerRank(welcome.rank), welcome.incarnation, batch->clock));
    pulls.push_back(PullOf(batch, Which::kChanged));
  }
  if (early_.empty() || !train || early_.back().clock() != batch->clock) pulls.push_back(PullOf(batch, Which::kDense));
  if (scenario_.tables_together) return client_.Pull(pulls, now, out);
  for (const worker::TableToPull& pull : pulls) client_.Pull({&pull, 1}, now, out);
}

worker::Plan SimWorker::PlanOf(const TableSpec& spec, std::span<const Key> keys) {
  worker::Plan plan;
  const Positioner positioner(spec, TableSalt(scenario_.job.job.seed, spec.name));
  tables_.planner->Make(spec.id, spec.dim, positioner, keys, &plan);
  return plan;
}

worker::TableToPull SimWorker::PullOf(Batch* batch, Which which) {
  const std::size_t mark = which == Which::kChanged ? oracle_->changes().issued() : oracle_->counts().issued();
  BatchPull& pull = batch->pulls.emplace_back(this, batch, which, mark);
  return {&batch->PlanOf(which), {.use = batch->clock}, &pull};
}

// Programs may read rows without pushing them.
void SimWorker::PullAgain(Batch* batch, TimeUs now, Outbox* out) {
  if (!scenario_.reads_again || oracle_->counts().issued() == 0) return;
  const worker::TableToPull again = PullOf(batch, Which::kSparseAgain);
  client_.Pull({&again, 1}, now, out);
}

void SimWorker::CheckPull(const Batch& batch, const BatchPull& pull, std::uint64_t staleness) {
  const Which which = pull.which();
  const Buffer& rows = pull.rows();
  const worker::Plan& plan = batch.PlanOf(which);
  if (rows.size() != plan.keys.size() * plan.dim * sizeof(float))
    return oracle_->Fail(
        fmt::format("a pull returned {} bytes, expected {}", rows.size(), plan.keys.size() * plan.dim * sizeof(float)));
  oracle_->CheckStaleness(which == Which::kDense ? scenario_.layer : scenario_.counts, staleness);
  if (which == Which::kDense) return;
  // Without backup workers, a differing clock means that the pull is for a later clock.
  const bool late = client_.clock() != batch.clock && may_be_late();
  const Incarnation incarnation = client_.welcome().incarnation;
  if (late && model_ && client_.clock() > batch.clock)
    oracle_->residuals().OnResiduals(incarnation, client_.clock(), model_->residuals());
  const auto values = rows.as<float>();
  if (which == Which::kChanged) {
    for (std::size_t i = 0; i < plan.keys.size(); ++i)
      oracle_->CheckChanged(incarnation, batch.clock, plan.keys[i], values[i * kSparseDim], pull.mark());
    return;
  }
  oracle_->origins().OnPulled(incarnation, batch.clock, plan.keys, values);
  const PushCounts::Pulled pulled{.incarnation = incarnation,
                                  .clock = batch.clock,
                                  .mark = pull.mark(),
                                  .settled = !batch.train() && oracle_->cohorts().nobody_died(),
                                  .late = late};
  for (std::size_t i = 0; i < plan.keys.size(); ++i) {
    oracle_->CheckCount(pulled, plan.keys[i], values[i * kSparseDim]);
    if (values[i * kSparseDim] != values[i * kSparseDim + 1] && scenario_.counts_row_codec == ValueCodec::kFp32)
      oracle_->Fail(fmt::format("key {:x}: a pull returned the values {} and {}, expected two equal ones", plan.keys[i],
                                values[i * kSparseDim], values[i * kSparseDim + 1]));
  }
}

void SimWorker::OnCompute(TimeUs now, Outbox* out) {
  if (client_.state() != worker::ClientState::kRunning) return;
  if (pushed_) {
    PushDense(&*pushed_, now, out);
    if (scenario_.waits_for_pushes && unacked_pushes() > 0) return compute_.Begin(scenario_.compute_max_us);
    FinishTrain(&*pushed_, now, out);
    pushed_.reset();
    return Advance(now, out);
  }
  if (batches_.empty()) return;
  TARN_CHECK(batches_.front().waiting() == 0, "the sinks of a batch exist until its pulls have ended");
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  const std::uint64_t saved = client_.counters().cache_hits + client_.counters().combined_pushes;
  oracle_->OnRequestsSaved(saved - std::exchange(requests_saved_, saved));
  if (batch.train()) {
    PushSparse(&batch, now, out);
    if (scenario_.ticks_late) {
      pushed_ = std::move(batch);
      return compute_.Begin(scenario_.compute_max_us, scenario_.slow_batches);
    }
    FinishTrain(&batch, now, out);
  } else if (batch.rows.last) {
    const LeaseGrant& lease = batch.rows.lease;
    LeaseDone done{lease.lease, {}};
    for (std::uint64_t i = 0; i < lease.rows; ++i) done.quality.AddBinary(0.1f * float(i % 7) - 0.2f, i % 3 == 0);
    done.quality.AddLoss(0.7 * double(lease.rows));
    leases_.Finish(std::move(done));
  }
  Advance(now, out);
}

void SimWorker::PushSparse(Batch* batch, TimeUs now, Outbox* out) {
  const Clock clock = client_.clock();
  if (batch->clock != clock && (batch->clock > clock || !may_be_late()))
    oracle_->Fail(fmt::format("a batch of clock {} is pushed at clock {}", batch->clock.value, clock.value));
  next_clock_ = std::max(next_clock_, clock + 1);
  ChangeRows(*batch, now, out);
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
    sent = model_->Push(batch->sparse.keys, std::move(counts), clock);
  }
  const auto& [lease, first_row, rows, last_of_lease] = batch->rows;
  const std::size_t record = oracle_->counts().OnIssued(client_.welcome().incarnation, clock,
                                                        {lease.epoch, first_row, rows}, model_ ? &sent : nullptr);
  std::vector<worker::TableToPush> pushes;
  pushes.push_back({&batch->sparse, std::move(gradients),
                    Acknowledged(record, model_ ? SectionsOf(sent) : batch->sparse.runs.size())});
  if (scenario_.tables_together) pushes.push_back(PushOfDense(*batch));
  client_.Push(pushes, batch->clock, now, out);
}

worker::TableToPush SimWorker::PushOfDense(const Batch& batch) {
  Buffer layer = Buffer::Allocate(kDenseRows * kDenseDim * sizeof(float));
  auto l = layer.as_mutable<float>();
  for (std::size_t i = 0; i < l.size(); ++i) l[i] = 0.01f * float((i * 7 + batch.rows.first) % 13) - 0.05f;
  return {&batch.dense, std::move(layer), Acknowledged(std::nullopt, batch.dense.runs.size())};
}

// Each change of a batch is a separate push.
void SimWorker::ChangeRows(const Batch& batch, TimeUs now, Outbox* out) {
  const Welcome& welcome = client_.welcome();
  for (const RowChanges::Action& action :
       oracle_->changes().ActionsAt(WorkerRank(welcome.rank), welcome.incarnation, batch.clock)) {
    const std::size_t change = oracle_->changes().OnIssued(welcome.incarnation, client_.clock(), action);
    const worker::Plan plan = PlanOf(tables_.sparse(), {&action.key, 1});
    worker::Completion<>* const acked = &pushes_.emplace_back(this, std::nullopt, plan.runs.size(), change);
    const bool step = action.action == PushAction::kStep;
    const std::vector<float> row(kSparseDim, step ? -1.0f : action.value);
    Buffer values = action.action == PushAction::kDelete ? Buffer() : Buffer::CopyOf(std::span<const float>(row));
    if (step)
      client_.Push(plan, std::move(values), batch.clock, acked, now, out);
    else
      client_.Push(plan, action.action, std::move(values), acked, now, out);
  }
}

// Unless it was sent before, or together with the sparse rows.
void SimWorker::PushDense(Batch* batch, TimeUs now, Outbox* out) {
  if (scenario_.tables_together || std::exchange(batch->dense_sent, true)) return;
  const worker::TableToPush dense = PushOfDense(*batch);
  client_.Push({&dense, 1}, batch->clock, now, out);
}

void SimWorker::FinishTrain(Batch* batch, TimeUs now, Outbox* out) {
  const auto& [lease, first_row, rows, last_of_lease] = batch->rows;
  PushDense(batch, now, out);
  const DataPosition position{lease.lease, first_row + rows - lease.first_row};
  client_.TickTo(client_.clock() + 1, position, nullptr, now, out);
  if (scenario_.pulls_early && scenario_.depth == 1) {
    EarlyPull& early = early_.emplace_back(this, client_.clock());
    client_.Pull(batch->dense, {.use = client_.clock()}, &early, now, out);
  }
  RecordTick(batch);
  if (model_) oracle_->residuals().OnResiduals(client_.welcome().incarnation, client_.clock(), model_->residuals());
  if (last_of_lease) {
    LeaseDone done{lease.lease, {}};
    for (std::uint64_t i = 0; i < lease.rows; ++i) done.quality.AddBinary(float(i % 5) - 2.0f, i % 4 == 0);
    done.quality.AddLoss(0.9 * double(lease.rows));
    leases_.FinishAt(client_.clock(), std::move(done));
  }
}

void SimWorker::RequestLeases(TimeUs now, Outbox* out) {
  if (leases_.asked()) return;
  const bool drained = leases_.empty() && batches_.empty() && !pushed_;
  if (drained && leases_.jumps()) {
    const Clock to = *leases_.TakeJump();
    if (to > client_.clock()) {
      client_.TickTo(to, std::nullopt, nullptr, now, out);
      RecordTick(nullptr);
    }
    next_clock_ = client_.clock();
  }
  if (leases_.finished()) {
    if (drained && !leases_.awaits_tick() && !program_.busy()) client_.Leave(nullptr, now, out);  // idempotent
    return;
  }
  // Requests leases early (at most one is left), when nothing is left to do, and to report finished leases at once. A
  // program with state requests them only when nothing is left, between two clocks.
  if (scenario_.program_state && (!drained || program_.busy())) return;
  const bool ahead = leases_.size() <= 1 && !leases_.jumps() && !drained;
  const bool reports_done = scenario_.reports_done_at_once && leases_.has_done() && !drained && !leases_.jumps();
  if (!ahead && !reports_done && !(drained && !leases_.awaits_tick())) return;
  LeaseRequest request;
  request.want = ahead || drained ? 2 : 1;
  request.done = leases_.TakeDone();
  request.rows[0] = scenario_.train_rows;
  request.rows[1] = scenario_.valid_rows;
  request.rows[2] = scenario_.test_rows;
  leases_.OnAsked();
  client_.RequestLeases(std::move(request), this, now, out);
}

std::string SimWorker::Describe() const {
  return fmt::format(
      "state {} clock {} leases {} batches {} (front waits for {} pulls) unacked pushes {} asked {} finished {}",
      int(client_.state()), client_.clock().value, leases_.size(), batches_.size(),
      batches_.empty() ? 0 : batches_.front().waiting(), unacked_pushes(), leases_.asked(), leases_.finished());
}

}  // namespace tarn::sim
