#include "worker/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "core/listening.h"
#include "core/log.h"
#include "core/thread_time.h"
#include "worker/train/divergence.h"

namespace tarn::worker {
namespace {

constexpr TimeUs kMetricsPeriodUs = 500'000;
constexpr TimeUs kFailurePeriodUs = 1'000'000;
// Leases asked for at a time: one in work, one ahead.
constexpr std::uint32_t kLeasesAhead = 2;

}  // namespace

struct Trainer::InFlight {
  PreparedBatch prepared;
  BatchRows rows;
  Trace::SteadyClock::time_point started_at;  // to be computed

  bool train() const { return prepared.lease.purpose == LeasePurpose::kTrain; }
};

Trainer::Trainer(TrainerOptions options, net::Transport* transport)
    : options_(std::move(options)),
      transport_(transport),
      exchange_({.rank = options_.rank, .nonce = options_.nonce}, transport) {}

// Waits for steps that are under way: they use the batches of the window, their rows and the tally of a lease.
Trainer::~Trainer() { stepper_.reset(); }

TrainerEnd Trainer::Run() {
  Status going;
  if (!options_.record.empty()) going = record_.Open(options_.record);
  if (going) going = exchange_.Start(options_.scheduler);
  while (going && !abort_ && InFleet()) going = RoundWithinMemory();
  stop_loading_.request_stop();
  Send();  // the answer to Shutdown is among it (rule S1)
  WriteTrace();
  return HowItEnded(going);
}

bool Trainer::InFleet() const {
  return client().state() == ClientState::kJoining || client().state() == ClientState::kRunning;
}

// A batch may be larger than this machine.
Status Trainer::RoundWithinMemory() {
  try {
    return Round();
  } catch (const std::bad_alloc&) {
    FailJob({ErrorCode::kTooLarge, kNoMemoryForBatches});
    return {};
  }
}

// An error: there is nobody to tell it to.
Status Trainer::Round() {
  Exchange();
  if (!InFleet()) return {};
  TARN_RETURN_IF_ERROR(CheckScheduler());
  if (client().state() == ClientState::kJoining) return {};
  if (failed_ && Now() >= next_failure_) TellFailure();
  if (failed_) return {};
  if (Status status = Prepare(); !status) FailJob(status.error());
  if (source_ == nullptr) return {};
  if (auto error = source_->error()) FailJob(*error);
  if (!failed_) Fill();
  if (StepCanStart()) StartStep();
  if (StepCanFinish()) FinishStep();
  AskForWork();
  if (Now() >= next_metrics_) ReportMetrics();
  return {};
}

// Takes the next step towards the first batch, if it can be taken now.
Status Trainer::Prepare() {
  if (!set_up_) return Setup();
  if (loading_.valid()) {
    if (loading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    TARN_RETURN_IF_ERROR(loading_.get());
    TARN_RETURN_IF_ERROR(MakeTables());
  }
  if (TablesReady() && source_ == nullptr) return StartPipeline();
  return {};
}

// A file for each incarnation: tools/launch joins those of workers that were started again.
void Trainer::WriteTrace() const {
  const Welcome& welcome = client().welcome();
  if (options_.run_dir.empty() || welcome.incarnation.value == 0) return;
  const std::string path =
      fmt::format("{}/logs/trace-worker-{}-{}.json", options_.run_dir, welcome.rank, welcome.incarnation.value);
  if (Status s = trace_.Write(path, welcome.rank); !s) LogWarning("{}", s.error().message);
}

TrainerEnd Trainer::HowItEnded(const Status& going) {
  const Shutdown& reason = client().stop_reason();
  if (client().state() == ClientState::kFenced) {
    error_ = {ErrorCode::kFenced, "this worker was declared dead; it must join anew"};
    return TrainerEnd::kFenced;
  }
  if (failed_) {
    error_ = *failed_;
  } else if (!going) {
    error_ = going.error();
  } else if (InFleet()) {
    error_ = {ErrorCode::kCancelled, "terminated by a signal before the job was over"};
  } else if (reason.code == ErrorCode::kOk) {
    return TrainerEnd::kDone;
  } else {
    error_ = {reason.code, reason.reason};
  }
  return TrainerEnd::kFailed;
}

void Trainer::SayWait(TimeUs silent) {
  if (silent < kWaitNotePeriodUs) next_wait_note_ = kWaitNotePeriodUs;
  if (silent < next_wait_note_) return;
  next_wait_note_ = silent + kWaitNotePeriodUs;
  const double seconds = double(silent) * 1e-6;
  Tell(LogLevel::kWarning, kProgram,
       fmt::format(
           "the scheduler at {} has not been heard for {:.0f} s (is it running, is that its address, {}?); gives up in "
           "{:.0f} s",
           options_.scheduler, seconds, kSameKeys, std::max(0.0, options_.join_seconds_max - seconds)));
}

Status Trainer::CheckScheduler() {
  TARN_RETURN_IF_ERROR(exchange_.CheckScheduler());
  if (client().state() != ClientState::kJoining) return {};
  const TimeUs unheard = client().SchedulerSilence(Now());
  SayWait(unheard);
  const double silent = double(unheard) * 1e-6;
  if (silent <= options_.join_seconds_max) return {};
  return Fail(
      ErrorCode::kUnavailable,
      fmt::format("the scheduler at {} has not been heard for {:.0f} seconds: is it running, is that its address, {}?",
                  options_.scheduler, silent, kSameKeys));
}

// How long the next Receive may wait.
TimeUs Trainer::WaitUs() const { return StepCanStart() || StepCanFinish() ? 0 : ClientExchange::kWaitMaxUs; }

void Trainer::Send() {
  Status recorded;
  for (const Outgoing& o : *exchange_.outbox()) {
    const auto* tick = std::get_if<Tick>(&o.message.body);
    if (tick != nullptr && recorded) recorded = record_.Tick(client().welcome().incarnation, tick->clock);
  }
  exchange_.Send();
  if (!recorded) FailJob(recorded.error());
}

void Trainer::Exchange() {
  Send();
  const TimeUs wait = WaitUs();
  const auto begin = std::chrono::steady_clock::now();
  exchange_.Wait(wait);
  if (wait > 0 && times_.started() && !finished_) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (stepper_->steps() == 0) (window_.empty() ? times_.await_data : times_.await_rows) += seconds;
  }
  exchange_.Accept();
  if (const Expected<bool> connected = exchange_.ConnectShards(); !connected) FailJob(connected.error());
  for (ClientEvent& event : client().TakeEvents()) OnEvent(std::move(event));
}

void Trainer::FailJob(Error error) {
  if (failed_) return;
  LogError("{}", ToString(error));
  failed_ = std::move(error);
  set_up_ = true;
  TellFailure();
}

// The scheduler stops the fleet and answers with Shutdown; until it does, it is told again.
void Trainer::TellFailure() {
  next_failure_ = Now() + kFailurePeriodUs;
  Message message;
  message.job = client().job();  // the trainer may not have looked at it yet
  message.sender = {Role::kWorker, client().welcome().rank, client().welcome().incarnation};
  message.body = Shutdown{failed_->code, failed_->message};
  exchange_.outbox()->push_back({kSchedulerPeer, std::move(message)});
}

Status Trainer::OpenData() {
  const DataSection& data = job_.data;
  const std::string* names[3] = {&data.train, &data.valid, &data.test};
  for (std::size_t i = 0; i < 3; ++i) {
    if (names[i]->empty()) continue;
    DatasetOptions options;
    if (i == 0) options.limit_rows = data.limit_rows;
    options.stop = stop_loading_.get_token();
    options.report_malformed = [](const std::string& message) { LogWarning("malformed line: {}", message); };
    auto set = Dataset::Open(data, *names[i], options);
    if (!set) return std::unexpected(set.error());
    datasets_[i] = std::move(*set);
  }
  return {};
}

Status Trainer::Setup() {
  auto job = ParseJob(client().welcome().job_text, "the scheduler's job", "/");
  if (!job) return std::unexpected(job.error());
  job_ = std::move(*job);
  transport_->SetBusyPoll(client().busy_poll_us());
  set_up_ = true;
  // Indexing a large file takes longer than a lease: heartbeats go on meanwhile.
  loading_ = std::async(std::launch::async, [this] {
    Status status = OpenData();
    transport_->Wake();
    return status;
  });
  return {};
}

Status Trainer::MakeTables() {
  if (datasets_[0] == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                "the job names no training file: set data.train, or give the program that trains in its place: "
                "tools/launch JOB.toml -- PROGRAM [ARGUMENT...]");
  auto model = MakeModel(
      job_,
      {.fields = datasets_[0]->fields(), .dense_columns = datasets_[0]->dense_columns(), .classes = job_.data.classes});
  if (!model) return std::unexpected(model.error());
  model_ = std::move(*model);
  uses_ = model_->tables();
  options_.stepper.rank = client().welcome().rank;
  options_.stepper.done = [this] { transport_->Wake(); };
  auto stepper = Stepper::Make(job_, model_.get(), options_.stepper);
  if (!stepper) return std::unexpected(stepper.error());
  stepper_ = std::move(*stepper);
  for (const TableUse& use : uses_) client().CreateTable(use.spec, Now(), exchange_.outbox());
  next_clock_ = client().clock();
  LogInfo("worker {} starts at clock {}: {} training rows, {} tables", client().welcome().rank, client().clock().value,
          datasets_[0]->rows(), uses_.size());
  return {};
}

Status Trainer::StartPipeline() {
  const std::uint32_t bits = client().view().routes.partition_bits;
  auto pulls = PullStage::Make(job_, uses_, bits, &client(), &trace_);
  if (!pulls) return std::unexpected(pulls.error());
  pulls_ = std::move(*pulls);
  BatchPlanner planner(job_, uses_,
                       {.partition_bits = bits,
                        .gpu = GpuFor(job_.train, client().welcome().rank),
                        .device_keys_min = options_.device_plan_keys_min});
  source_ = std::make_unique<BatchSource>(job_, DatasetSet{datasets_[0].get(), datasets_[1].get(), datasets_[2].get()},
                                          std::move(planner), &trace_, [this] { transport_->Wake(); });
  return {};
}

void Trainer::OnEvent(ClientEvent event) {
  if (auto* pull = std::get_if<PullDone>(&event)) {
    OnPull(std::move(*pull));
  } else if (auto* tick = std::get_if<TickDone>(&event)) {
    while (!done_at_tick_.empty() && done_at_tick_.begin()->first <= tick->clock.value) {
      done_.push_back(std::move(done_at_tick_.begin()->second));
      done_at_tick_.erase(done_at_tick_.begin());
    }
  } else if (auto* leases = std::get_if<LeasesGranted>(&event)) {
    asked_ = false;
    if (!leases->reply.grants.empty()) times_.Start();
    for (const LeaseGrant& grant : leases->reply.grants) source_->AddLease(grant);
    finished_ = finished_ || leases->reply.finished;
    if (leases->reply.grants.empty() && !finished_) jump_to_ = leases->reply.jump_to;
  } else if (auto* table = std::get_if<TableReady>(&event)) {
    if (table->code != ErrorCode::kOk) return FailJob({table->code, table->message});
    for (TableUse& use : uses_)
      if (use.spec.name == table->spec.name) use.spec = table->spec;
    ++ready_tables_;
  } else if (auto* failed = std::get_if<RequestFailed>(&event)) {
    FailJob(failed->error);
  }
}

void Trainer::OnPull(PullDone pull) {
  for (InFlight& batch : window_) {
    const auto taken = pulls_->OnPull(&pull, &batch.rows);
    if (!taken) return FailJob(taken.error());
    if (*taken) return;
  }
}

void Trainer::Fill() {
  const std::size_t depth = 1 + job_.train.prefetch;
  while (window_.size() < depth) {
    const auto purpose = source_->NextPurpose();
    if (!purpose) break;
    // Evaluation stands at one clock: it does not overlap with training.
    const bool train = *purpose == LeasePurpose::kTrain;
    if (!window_.empty() && train != window_.back().train()) break;
    InFlight& batch = window_.emplace_back();
    batch.prepared = std::move(*source_->TryTake());
    const Clock use = train ? std::max(next_clock_, client().clock()) : client().clock();
    if (train) next_clock_ = use + 1;
    if (Status s = pulls_->Begin(batch.prepared.plans, use, train, Now(), exchange_.outbox(), &batch.rows); !s)
      return FailJob(s.error());
  }
  if (job_.storage.memory != 0) StageNext();
}

// Servers that keep rows on disk hear of the batch that will be pulled next.
void Trainer::StageNext() {
  const PreparedBatch* next = source_->Next();
  if (next == nullptr) return;
  const std::pair which(next->lease.lease, next->after.rows);
  if (std::exchange(staged_, which) == which) return;
  for (std::size_t t = 0; t < uses_.size(); ++t)
    if (uses_[t].rows != RowsNeeded::kAll) client().Prefetch(next->plans[t], Now(), exchange_.outbox());
}

// The first batch that is not being computed.
bool Trainer::StepCanStart() const {
  if (failed_ || stepper_ == nullptr || stepper_->steps() == stepper_->steps_max()) return false;
  if (stepper_->steps() >= window_.size()) return false;
  const InFlight& next = window_[stepper_->steps()];
  if (!next.rows.ready()) return false;
  // What servers do not acknowledge holds training back: pulls do not where all rows are kept.
  return !next.train() || client().pending_bytes() <= options_.waiting_bytes_max;
}

void Trainer::StartStep() {
  InFlight& batch = window_[stepper_->steps()];
  const double cpu_before = ThreadCpuSeconds();
  batch.started_at = Trace::SteadyClock::now();
  if (Status s = pulls_->Read(&batch.rows, stepper_->stream()); !s) return FailJob(s.error());
  compute_cpu_seconds_ += ThreadCpuSeconds() - cpu_before;
  const Status started = stepper_->Start(batch.prepared.batch, batch.rows.plans, batch.rows.values, batch.train(),
                                         &lease_quality_, batch.rows.placed);
  if (!started) FailJob(started.error());
}

bool Trainer::StepCanFinish() const { return !failed_ && stepper_ != nullptr && stepper_->Done(); }

void Trainer::FinishStep() {
  auto result = stepper_->Finish();
  if (!result) return FailJob(result.error());
  if (!std::isfinite(result->counted.loss_sum)) return FailJob(Divergence(window_.front()));
  compute_cpu_seconds_ += result->cpu_seconds;
  if (result->beside) beside_cpu_seconds_ += result->cpu_seconds;
  InFlight batch = std::move(window_.front());
  window_.pop_front();
  CountCompute(batch);
  const bool pushes = !result->gradients.empty();
  if (batch.train()) {
    batches_passed_over_ += pushes ? 0 : 1;
    loss_sum_ += result->counted.loss_sum;
    loss_rows_ += result->counted.rows;
    FinishTrain(&batch, std::move(result->gradients));
  }
  pulls_->End(&batch.rows, pushes);
  if (batch.prepared.last_of_lease) {
    LeaseDone done{batch.prepared.lease.lease, lease_quality_.Take()};
    if (batch.train())
      done_at_tick_.emplace(client().clock().value, std::move(done));
    else
      done_.push_back(std::move(done));
  }
  source_->Recycle(std::move(batch.prepared));
  step_over_at_ = Trace::SteadyClock::now();
}

Error Trainer::Divergence(const InFlight& batch) const {
  std::vector<std::span<const float>> rows(uses_.size());
  for (std::size_t t = 0; t < uses_.size(); ++t) {
    const Plan& plan = *batch.rows.plans[t];
    if (batch.rows.placed[t] == nullptr)
      rows[t] = batch.rows.values[t].as<float>();
    else if (stepper_->stream() == nullptr)  // else they are in the memory of a GPU
      rows[t] = {batch.rows.placed[t], plan.keys.size() * plan.dim};
  }
  return DivergenceOf({.lease = &batch.prepared.lease,
                       .clock = batch.rows.use,
                       .uses = uses_,
                       .plans = batch.rows.plans,
                       .rows = rows});
}

// Of two steps at a time the second one holds the loop up once it is through with the first one.
void Trainer::CountCompute(const InFlight& batch) {
  const auto begin = std::max(batch.started_at, step_over_at_), end = Trace::SteadyClock::now();
  trace_.Add(batch.train() ? "compute" : "evaluate", kComputeTrack, begin, end);
  times_.compute += std::chrono::duration<double>(end - begin).count();
}

void Trainer::FinishTrain(InFlight* batch, std::vector<Buffer> gradients) {
  TARN_CHECK(batch->rows.use == client().clock(), "a batch is trained at each clock");
  const double cpu_before = ThreadCpuSeconds();
  Span push(&trace_, "push", kComputeTrack);
  const std::uint64_t lines = batch->prepared.lines;
  if (Status s = record_.Batch(client().welcome().incarnation, batch->prepared.lease,
                               batch->prepared.after.rows - lines, lines, batch->rows.use);
      !s)
    return FailJob(s.error());
  for (std::size_t t = 0; t < gradients.size(); ++t)  // none: the batch is passed over
    client().Push(*batch->rows.plans[t], std::move(gradients[t]), batch->rows.use, Now(), exchange_.outbox());
  position_ = batch->prepared.after;
  client().Tick(position_, Now(), exchange_.outbox());
  samples_ += batch->prepared.batch.rows;
  malformed_lines_ += lines - batch->prepared.batch.rows;
  ++batches_;
  times_.push += push.End();
  push_cpu_seconds_ += ThreadCpuSeconds() - cpu_before;
}

void Trainer::AskForWork() {
  if (asked_ || leaving_) return;
  const bool drained = source_->leases_open() == 0 && window_.empty();
  if (drained && jump_to_) {
    if (*jump_to_ > client().clock()) client().TickTo(*jump_to_, position_, Now(), exchange_.outbox());
    next_clock_ = client().clock();
    jump_to_.reset();
  }
  if (finished_) {
    if (!drained || !done_at_tick_.empty()) return;
    leaving_ = true;
    ReportMetrics();
    client().Leave(Now(), exchange_.outbox());
    return;
  }
  const bool ahead = source_->leases_open() < kLeasesAhead && !jump_to_ && !drained;
  if (!ahead && !(drained && done_at_tick_.empty())) return;
  LeaseRequest request;
  request.want = kLeasesAhead;
  request.done = std::move(done_);
  done_.clear();
  for (std::size_t i = 0; i < 3; ++i) request.rows[i] = datasets_[i] ? datasets_[i]->rows() : 0;
  asked_ = true;
  client().RequestLeases(std::move(request), Now(), exchange_.outbox());
}

void Trainer::ReportMetrics() {
  next_metrics_ = Now() + kMetricsPeriodUs;
  std::vector<Counter> metrics = MetricsOf(client().counters());
  const std::initializer_list<Counter> of_training = {
      {"samples_trained", double(samples_)},
      {"malformed_lines", double(malformed_lines_)},
      {"batches", double(batches_)},
      {"batches_passed_over", double(batches_passed_over_)},
      {"loss_sum", loss_sum_},
      {"loss_rows", double(loss_rows_)},
      {"hot_rows", double(pulls_->hot_looked_for())},
      {"hot_hits", double(pulls_->hot_found())},
      {"cpu.compute_seconds", compute_cpu_seconds_},
      {"cpu.push_seconds", push_cpu_seconds_},
      {"cpu.loop_seconds", ThreadCpuSeconds() + beside_cpu_seconds_},
  };
  metrics.insert(metrics.end(), of_training);
  const BatchSource::Seconds reader = source_->seconds();
  const auto stages = times_.Metrics({reader.read, reader.plan, reader.await_room, pulls_->busy_seconds()});
  metrics.insert(metrics.end(), stages.begin(), stages.end());
  client().SetMetrics(std::move(metrics));
}

}  // namespace tarn::worker
