#include "server/shard/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "core/job/job.h"
#include "core/metrics/metric_list.h"
#include "server/exhaustion.h"
#include "server/shard/scheduler_link.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_parts.h"
#include "server/shard/shard_start.h"

namespace tarn::server {

namespace {

bool IsControl(const Body& body) {
  return std::holds_alternative<Welcome>(body) || std::holds_alternative<ViewUpdate>(body) ||
         std::holds_alternative<HeartbeatAck>(body) || std::holds_alternative<Shutdown>(body);
}

TimeUs MicrosecondsOf(double seconds) { return static_cast<TimeUs>(seconds * 1e6); }

}  // namespace

// Routes messages and timers to the parts of the shard. Discards the unsent messages of a step that has failed.
class Shard::Impl {
 public:
  Impl(ShardOptions options, CheckpointStore* store, ShardObserver* observer);

  void Start(TimeUs now, Outbox* out);
  void OnMessage(Peer from, Message&& message, TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;
  void OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out);
  void OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out);
  void OnLogSynced(TimeUs now, Outbox* out);
  void OnTier(TimeUs now, Outbox* out);
  void SetMemoryLimit(std::size_t bytes);
  void Abandon(const Error& error, Outbox* out);

  const StopNotice& stop() const { return stop_; }
  const SchedulerLink& scheduler() const { return scheduler_; }
  const DurableOutbox& outbox() const { return outbox_; }
  const ShardParts& parts() const { return *parts_; }
  const ShardCounters& counters() const { return counters_; }
  TimeUs busy_poll_us() const { return busy_poll_us_; }
  Expected<std::uint64_t> StateHash() const;
  Expected<std::uint64_t> DurableHash() const;

 private:
  // Runs a step. If the step cannot be completed, replaces its messages in `out` by the reason for which the shard
  // stops, because an incomplete step must not acknowledge anything. Messages that are already sent are about completed
  // work (ShardStep).
  template <typename Run>
  void Guard(TimeUs now, Outbox* out, Run run);

  void OnControl(Message message);
  void OnWelcome(const Message& message);
  Status Enter(const Message& message, const Welcome& welcome);
  ShardBase Base();
  Status Adopt(const View& view);
  void SendHeartbeat();
  CheckpointId OldestWritten() const;
  void AdvanceClocks();

  ShardOptions options_;
  CheckpointStore* store_;
  ShardObserver null_observer_;
  ShardObserver* observer_;
  ShardCounters counters_;
  TimeUs busy_poll_us_ = 0;
  ShardStep step_;
  StopNotice stop_;
  SchedulerLink scheduler_;
  DurableOutbox outbox_;
  BlobDesk blobs_;
  std::unique_ptr<ShardParts> parts_;
};

Shard::Impl::Impl(ShardOptions options, CheckpointStore* store, ShardObserver* observer)
    : options_(std::move(options)),
      store_(store),
      observer_(observer != nullptr ? observer : &null_observer_),
      step_(options_.shard, options_.flush, options_.flush_bytes),
      stop_(&step_),
      scheduler_({options_.nonce, options_.endpoint, options_.shards_per_server, options_.http}, &step_),
      outbox_(options_.log, &step_),
      blobs_(options_.blobs),
      parts_(std::make_unique<ShardParts>(Base(), RouteMap{}, StoreOptions{}, nullptr)) {}

ShardBase Shard::Impl::Base() {
  return {.options = options_,
          .checkpoint_store = store_,
          .observer = observer_,
          .counters = &counters_,
          .step = &step_,
          .stop = &stop_,
          .outbox = &outbox_,
          .blobs = &blobs_,
          .on_tick = [this] { AdvanceClocks(); }};
}

// Steps.

template <typename Run>
void Shard::Impl::Guard(TimeUs now, Outbox* out, Run run) {
  step_.Begin(now, out);
  Status status = CatchExhaustion(run);
  if (const Status failure = stop_.TakeFailure(); status) status = failure;
  if (!status) {
    step_.DropMessages();
    Abandon(status.error(), out);
  }
  if (stop_.stopped() && !stop_.ended()) outbox_.DropHeld();
}

void Shard::Impl::Start(TimeUs now, Outbox* out) {
  step_.Begin(now, out);
  scheduler_.Start();
}

void Shard::Impl::OnMessage(Peer from, Message&& message, TimeUs now, Outbox* out) {
  if (stop_.ended()) return;
  Guard(now, out, [&] {
    if (stop_.stopped()) {
      const auto* shutdown = std::get_if<Shutdown>(&message.body);
      if (shutdown != nullptr && scheduler_.IsFromScheduler(from, message)) stop_.OnShutdown(*shutdown);
      return;
    }
    if (!IsControl(message.body)) {
      if (scheduler_.joined() && !scheduler_.Paused()) parts_->messages.OnMessage(from, std::move(message));
    } else if (scheduler_.IsFromScheduler(from, message)) {
      OnControl(std::move(message));
    } else {
      ++counters_.refused_other;
    }
  });
}

void Shard::Impl::OnTimer(TimeUs now, Outbox* out) {
  if (stop_.ended()) return;
  Guard(now, out, [&] {
    if (stop_.stopped()) return stop_.OnTimer(scheduler_.lease_us());
    parts_->cuts.OnTimer();
    parts_->timer.OnTimer(now);
    if (now < scheduler_.next_beat()) return;
    if (!scheduler_.joined()) return scheduler_.SendJoin();
    SendHeartbeat();
    parts_->cuts.SendPart();
  });
}

TimeUs Shard::Impl::NextTimer() const {
  if (stop_.stopped()) return stop_.NextTimer(scheduler_.lease_us());
  const TimeUs beat = scheduler_.next_beat();
  const TimeUs slice = parts_->cuts.NextTimer(beat);
  return slice < beat ? slice : std::min(beat, parts_->timer.NextTimer());
}

void Shard::Impl::OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out) {
  if (stop_.stopped()) return;
  Guard(now, out, [&] { parts_->cuts.OnWritten(std::move(part)); });
}

void Shard::Impl::OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out) {
  if (stop_.stopped()) return;
  Guard(now, out, [&] {
    const auto answer = blobs_.OnWritten(written);
    if (!answer)
      parts_->cuts.Report({.id = written.checkpoint, .code = answer.error().code, .message = answer.error().message});
    else if (*answer)
      step_.Send((*answer)->to, (*answer)->ack);
  });
}

void Shard::Impl::OnLogSynced(TimeUs now, Outbox* out) {
  if (stop_.stopped() || !outbox_.logging()) return;
  Guard(now, out, [&] {
    if (const Status synced = outbox_.OnSynced(); !synced)
      stop_.Stop({synced.error().code, "log: " + synced.error().message});
  });
}

void Shard::Impl::OnTier(TimeUs now, Outbox* out) {
  if (stop_.stopped() || parts_->rows.tier() == nullptr) return;
  Guard(now, out, [&] { parts_->messages.Maintain(scheduler_.Paused()); });
}

void Shard::Impl::SetMemoryLimit(std::size_t bytes) {
  if (Residency* tier = parts_->rows.tier()) tier->SetLimit(bytes);
  parts_->SetMemoryLimit(bytes);
}

void Shard::Impl::Abandon(const Error& error, Outbox* out) {
  step_.Begin(step_.now(), out);
  stop_.Stop(error);
}

// The scheduler.

void Shard::Impl::OnControl(Message message) {
  if (const auto* shutdown = std::get_if<Shutdown>(&message.body)) return stop_.OnShutdown(*shutdown);
  if (std::holds_alternative<Welcome>(message.body)) return OnWelcome(message);
  if (!scheduler_.joined()) return;  // ignored; the shard repeats its Join until it has a Welcome
  scheduler_.OnHeard();
  if (const auto* update = std::get_if<ViewUpdate>(&message.body))
    if (const Status status = Adopt(update->view); !status) stop_.Stop(status.error().code, status.error().message);
}

void Shard::Impl::OnWelcome(const Message& message) {
  const Welcome& welcome = std::get<Welcome>(message.body);
  if (!scheduler_.IsMine(welcome)) return;  // for an earlier process
  scheduler_.OnHeard();
  if (scheduler_.joined()) return;
  if (const Status status = Enter(message, welcome); !status && !stop_.step_failed())
    stop_.Stop(status.error().code, status.error().message);
}

Status Shard::Impl::Enter(const Message& message, const Welcome& welcome) {
  if (welcome.rank != options_.shard.value)
    return Fail(ErrorCode::kInternal,
                fmt::format("shard {}: welcomed as shard {}", options_.shard.value, welcome.rank));
  const auto job = ParseJob(welcome.job_text, "the scheduler's job", ".");
  if (!job) return std::unexpected(job.error());
  step_.SetIdentity(message.job, welcome.incarnation);
  scheduler_.SetPeriods(MicrosecondsOf(job->fleet.heartbeat_seconds), MicrosecondsOf(job->fleet.lease_seconds));
  busy_poll_us_ = job->fleet.busy_poll_us;
  auto parts = MakeParts(Base(), *job, welcome.view.routes);
  if (!parts) return std::unexpected(parts.error());
  parts_ = *std::move(parts);
  step_.SetEpoch(welcome.view.routes.epoch);
  blobs_.SetResumed(welcome.resume_directory);
  TARN_RETURN_IF_ERROR(StartState(Base(), *job, welcome, parts_.get()));
  scheduler_.SetJoined();
  return Adopt(welcome.view);
}

// Sets the time of day after it has closed clocks: a replay, too, reads the record of the time after that.
Status Shard::Impl::Adopt(const View& view) {
  FleetView& ours = parts_->view;
  if (view.version <= ours.view().version) return {};
  TARN_RETURN_IF_ERROR(ours.Adopt(view, [&] { outbox_.AppendView(view, parts_->cuts.newest_order()); }));
  parts_->cuts.Adopt(view.checkpoint);
  blobs_.SetOrder(view.checkpoint);
  AdvanceClocks();
  parts_->timer.SetTime(step_.now());
  SendHeartbeat();
  return {};
}

// Begins a cut that is due, then closes clocks and answers pulls as the workers' clocks allow.
void Shard::Impl::AdvanceClocks() {
  parts_->cuts.CutIfDue();
  if (stop_.step_failed() || !stop_.Check(parts_->clocks.CloseReady())) return;
  parts_->pulls.AnswerOpened();
}

// The oldest checkpoint whose directory may still be written to; 0: none.
CheckpointId Shard::Impl::OldestWritten() const {
  const CheckpointId rows = parts_->cuts.writing(), blobs = blobs_.writing();
  if (rows.value == 0 || blobs.value == 0) return std::max(rows, blobs);
  return std::min(rows, blobs);
}

void Shard::Impl::SendHeartbeat() {
  const ShardParts& parts = *parts_;
  Heartbeat beat;
  beat.view = parts.view.view().version;
  beat.clock = parts.clocks.minimum();
  beat.fenced = parts.clocks.cohort().Fenced();
  beat.fenced_ticks = parts.clocks.cohort().FencedTicks();
  beat.writing = OldestWritten();
  beat.log_synced = outbox_.synced();
  beat.log_bytes = outbox_.log_bytes();
  beat.counters = parts.rows.delays().ByWorker().AddFields(kRowMetrics, parts.rows.counters()).ToCounters();
  beat.delay = parts.rows.delays().histogram();
  outbox_.SendHeartbeat(std::move(beat));
  scheduler_.OnBeat();
}

Expected<std::uint64_t> Shard::Impl::DurableHash() const {
  const auto rows = parts_->rows.StateHash();
  if (!rows) return rows;
  const SoftState soft = parts_->soft_state();
  return HashCombine(HashCombine(*rows, soft.Hash()), soft.VersionsHash());
}

Expected<std::uint64_t> Shard::Impl::StateHash() const {
  const auto durable = DurableHash();
  if (!durable) return durable;
  std::uint64_t state = *durable;
  auto add = [&state](auto... words) { ((state = HashCombine(state, words)), ...); };
  add(parts_->cuts.cutting().value, parts_->pulls.parked(), outbox_.held(), outbox_.appended().value,
      outbox_.synced().value, parts_->lists.bytes());
  return state;
}

Shard::Shard(ShardOptions options, CheckpointStore* store, ShardObserver* observer)
    : impl_(std::make_unique<Impl>(std::move(options), store, observer)) {}
Shard::~Shard() = default;

void Shard::Start(TimeUs now, Outbox* out) { impl_->Start(now, out); }
void Shard::OnMessage(Peer from, Message&& message, TimeUs now, Outbox* out) {
  impl_->OnMessage(from, std::move(message), now, out);
}
void Shard::OnTimer(TimeUs now, Outbox* out) { impl_->OnTimer(now, out); }
TimeUs Shard::NextTimer() const { return impl_->NextTimer(); }
void Shard::OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out) {
  impl_->OnCheckpointWritten(std::move(part), now, out);
}
void Shard::OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out) {
  impl_->OnBlobWritten(written, now, out);
}
void Shard::OnLogSynced(TimeUs now, Outbox* out) { impl_->OnLogSynced(now, out); }
void Shard::OnTier(TimeUs now, Outbox* out) { impl_->OnTier(now, out); }
void Shard::SetMemoryLimit(std::size_t bytes) { impl_->SetMemoryLimit(bytes); }
std::size_t Shard::memory_bytes() const { return impl_->parts().rows.memory_bytes() + impl_->parts().WaitingBytes(); }
void Shard::Abandon(const Error& error, Outbox* out) { impl_->Abandon(error, out); }

bool Shard::stopped() const { return impl_->stop().stopped(); }
bool Shard::ended() const { return impl_->stop().ended(); }
const Shutdown& Shard::stop_reason() const { return impl_->stop().reason(); }
const View& Shard::view() const { return impl_->parts().view.view(); }
Clock Shard::minimum_clock() const { return impl_->parts().clocks.minimum(); }
const Store& Shard::rows() const { return impl_->parts().rows; }
const ShardCounters& Shard::counters() const { return impl_->counters(); }
TimeUs Shard::scheduler_heard() const { return impl_->scheduler().heard(); }
LogSequence Shard::log_synced() const { return impl_->outbox().synced(); }
bool Shard::log_is_durable() const { return impl_->outbox().IsDurable(); }
TimeUs Shard::lease_us() const { return impl_->scheduler().lease_us(); }
TimeUs Shard::busy_poll_us() const { return impl_->busy_poll_us(); }
bool Shard::joined() const { return impl_->scheduler().joined(); }
Expected<std::uint64_t> Shard::StateHash() const { return impl_->StateHash(); }
Expected<std::uint64_t> Shard::DurableHash() const { return impl_->DurableHash(); }

}  // namespace tarn::server
