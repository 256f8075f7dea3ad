#include "server/shard/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "server/exhaustion.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

namespace {

constexpr TimeUs kJoinPeriodUs = 500'000;
constexpr TimeUs kLeaseBeforeWelcomeUs = 30'000'000;
constexpr TimeUs kReasonPeriodUs = 1'000'000;
// In due time: the first may be lost, and those that jumps in time bring forward with it.
constexpr std::uint32_t kTellingsMin = 3;

bool IsControl(const Body& body) {
  return std::holds_alternative<Welcome>(body) || std::holds_alternative<ViewUpdate>(body) ||
         std::holds_alternative<HeartbeatAck>(body) || std::holds_alternative<Shutdown>(body);
}

}  // namespace

Shard::Impl::Impl(ShardOptions options, CheckpointStore* store, ShardObserver* observer)
    : options_(std::move(options)),
      store_(store),
      observer_(observer != nullptr ? observer : &nobody_),
      heartbeat_us_(kJoinPeriodUs),
      lease_us_(kLeaseBeforeWelcomeUs),
      rows_(std::make_unique<Store>(StoreOptions{})),
      parked_(options_.parked_pulls_max, options_.parked_bytes_max),
      replies_(options_.reply_bytes_max, options_.reply_peer_bytes_max),
      blobs_(options_.blobs),
      lists_(options_.held_lists_bytes_max, options_.held_lists_peer_bytes_max),
      gate_(options_.waiting_messages_max, options_.waiting_bytes_max) {}

Message Shard::Impl::Make(Body body) const {
  Message message;
  message.job = job_;
  message.sender = {Role::kShard, options_.shard.value, incarnation_};
  message.epoch = view_.routes.epoch;
  message.body = std::move(body);
  return message;
}

void Shard::Impl::Send(Peer to, Body body) { out_->push_back({to, Make(std::move(body))}); }

void Shard::Impl::StopWith(ErrorCode code, std::string reason) {
  if (stopped_) return;
  stopped_ = true;
  stopped_at_ = now_;
  stop_reason_ = {code, std::move(reason)};
  held_.Clear();
  TellReason();
}

bool Shard::Impl::Note(const Status& status) {
  if (!status && failure_) failure_ = status;
  return status.has_value();
}

// Rule S2. The next time is set first: telling may meet the end of the memory.
void Shard::Impl::TellReason() {
  const bool in_time = next_telling_ == 0 || now_ - next_telling_ < kReasonPeriodUs;
  next_telling_ = now_ + kReasonPeriodUs;
  if (in_time) ++tellings_;
  Send(kSchedulerPeer, stop_reason_);
}

void Shard::Impl::Abandon(const Error& error, Outbox* out) {
  out_ = out;
  StopWith(error.code, fmt::format("shard {}: {}", options_.shard.value, error.message));
}

// What a step has not finished it must not acknowledge.
template <typename Step>
void Shard::Impl::Guard(Outbox* out, Step step) {
  const std::size_t before = out->size();
  Status status = CatchExhaustion(step);
  if (status) status = std::exchange(failure_, {});
  if (!status) {
    out->erase(out->begin() + static_cast<std::ptrdiff_t>(before), out->end());
    Abandon(status.error(), out);
  }
}

void Shard::Impl::Start(TimeUs now, Outbox* out) {
  now_ = heard_ = now;
  out_ = out;
  SendJoin();
}

bool Shard::Impl::IsFromScheduler(Peer from, const Message& message) const {
  return from == kSchedulerPeer && message.sender.role == Role::kScheduler && (!joined_ || message.job == job_);
}

void Shard::Impl::OnMessage(Peer from, Message message, TimeUs now, Outbox* out) {
  if (ended_) return;
  now_ = now;
  out_ = out;
  if (stopped_) {
    if (std::holds_alternative<Shutdown>(message.body) && IsFromScheduler(from, message)) OnShutdown();
    return;
  }
  if (!IsControl(message.body)) return OnData(from, std::move(message));
  if (IsFromScheduler(from, message)) return OnControl(std::move(message));
  ++counters_.refused_other;
}

void Shard::Impl::OnTimer(TimeUs now, Outbox* out) {
  if (ended_) return;
  now_ = now;
  out_ = out;
  if (stopped_) {
    if (now - stopped_at_ >= lease_us_ && tellings_ >= kTellingsMin)
      ended_ = true;
    else if (now >= next_telling_)
      TellReason();
    return;
  }
  if (cut_ && now >= next_slice_ && !rows_->cut().waits() && store_->HasRoom()) ContinueCut();
  ContinueLives();
  if (now < next_beat_) return;
  if (!joined_) return SendJoin();
  SendHeartbeat();
  SendPart();
}

// A cut that waits for room, or for rows on disk, goes on when the store wakes the loop.
TimeUs Shard::Impl::NextTimer() const {
  if (stopped_ && tellings_ < kTellingsMin) return next_telling_;
  if (stopped_) return std::min(next_telling_, stopped_at_ + lease_us_);
  if (cut_ && next_slice_ < next_beat_ && !rows_->cut().waits() && store_->HasRoom()) return next_slice_;
  return std::min(next_beat_, NextLives());
}

Expected<std::uint64_t> Shard::Impl::StateHash() const {
  const auto durable = DurableHash();
  if (!durable) return durable;
  std::uint64_t state = *durable;
  auto add = [&state](auto... words) { ((state = HashCombine(state, words)), ...); };
  add(cut_ ? cut_->order.id.value : 0, parked_.size(), held_.size(), appended_.value, synced_.value, lists_.bytes());
  return state;
}

Shard::Shard(ShardOptions options, CheckpointStore* store, ShardObserver* observer)
    : impl_(std::make_unique<Impl>(std::move(options), store, observer)) {}
Shard::~Shard() = default;

void Shard::Start(TimeUs now, Outbox* out) { impl_->Start(now, out); }
void Shard::OnMessage(Peer from, Message message, TimeUs now, Outbox* out) {
  impl_->Guard(out, [&] { impl_->OnMessage(from, std::move(message), now, out); });
}
void Shard::OnTimer(TimeUs now, Outbox* out) {
  impl_->Guard(out, [&] { impl_->OnTimer(now, out); });
}
TimeUs Shard::NextTimer() const { return impl_->NextTimer(); }
void Shard::OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out) {
  impl_->Guard(out, [&] { impl_->OnCheckpointWritten(std::move(part), now, out); });
}
void Shard::OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out) {
  impl_->Guard(out, [&] { impl_->OnBlobWritten(written, now, out); });
}
void Shard::OnLogSynced(TimeUs now, Outbox* out) {
  impl_->Guard(out, [&] { impl_->OnLogSynced(now, out); });
}
void Shard::OnTier(TimeUs now, Outbox* out) {
  impl_->Guard(out, [&] { impl_->OnTier(now, out); });
}
void Shard::SetMemoryLimit(std::size_t bytes) {
  if (Residency* tier = impl_->rows_->tier()) tier->SetLimit(bytes);
  impl_->BoundOthers(bytes);
}
std::size_t Shard::memory_bytes() const { return impl_->rows_->memory_bytes() + impl_->WaitingBytes(); }
void Shard::Abandon(const Error& error, Outbox* out) { impl_->Abandon(error, out); }

bool Shard::stopped() const { return impl_->stopped_; }
bool Shard::ended() const { return impl_->ended_; }
const Shutdown& Shard::stop_reason() const { return impl_->stop_reason_; }
const View& Shard::view() const { return impl_->view_; }
Clock Shard::minimum_clock() const { return impl_->cohort_.minimum(); }
const Store& Shard::rows() const { return *impl_->rows_; }
const ShardCounters& Shard::counters() const { return impl_->counters_; }
TimeUs Shard::scheduler_heard() const { return impl_->heard_; }
LogSequence Shard::log_synced() const { return impl_->synced_; }
bool Shard::log_is_durable() const { return impl_->IsDurable(); }
TimeUs Shard::lease_us() const { return impl_->lease_us_; }
TimeUs Shard::busy_poll_us() const { return impl_->busy_poll_us_; }
bool Shard::joined() const { return impl_->joined_; }
Expected<std::uint64_t> Shard::StateHash() const { return impl_->StateHash(); }
Expected<std::uint64_t> Shard::DurableHash() const { return impl_->DurableHash(); }

}  // namespace tarn::server
