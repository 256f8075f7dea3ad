#include "tests/unit/worker/train/local_fleet.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tarn::testing {
namespace {

constexpr std::size_t kScheduler = 0, kWorker = 1, kFirstShard = 2;
constexpr TimeUs kStepUs = 10'000;
constexpr int kSettleSteps = 10'000;
// Time advances if no message arrives for this long: long enough that this is rare while the worker reads.
constexpr std::chrono::milliseconds kIdle{1};

Peer AcceptedFrom(std::size_t node) { return Peer(kFirstAcceptedPeer + node); }

}  // namespace

class LocalFleet::Manifests final : public scheduler::SchedulerStore {
 public:
  void WriteManifest(CheckpointId id, const std::string&, const Manifest&) override {
    written.push_back({scheduler::StoreWritten::What::kManifest, id.value, {}});
  }
  void RemoveCheckpoint(const std::string&) override {}
  std::vector<scheduler::StoreWritten> written;
};

LocalFleet::LocalFleet(const Job& job) : manifests_(std::make_unique<Manifests>()) {
  scheduler::SchedulerOptions options;
  options.job = job;
  options.job_text = ToToml(job);
  options.checkpoints_directory = "checkpoints";
  scheduler_ = std::make_unique<scheduler::Scheduler>(std::move(options), manifests_.get());
  scheduler_->Start(now_);
  for (std::uint32_t i = 0; i < job.fleet.servers * job.fleet.shards; ++i) {
    stores_.push_back(std::make_unique<server::MemoryCheckpointStore>(
        &files_, ShardId(i), [this](CheckpointPart part) { written_.push_back(std::move(part)); }));
    server::ShardOptions shard;
    shard.shard = ShardId(i);
    shard.nonce = 100 + i;
    shard.endpoint = "local://" + std::to_string(i);
    shards_.push_back(std::make_unique<server::Shard>(shard, stores_.back().get()));
    Outbox out;
    shards_.back()->Start(now_, &out);
    Post(kFirstShard + i, &out);
  }
}

LocalFleet::~LocalFleet() = default;

void LocalFleet::RequestStop() {
  Outbox out;
  scheduler_->RequestStop(now_, &out);
  Post(kScheduler, &out);
}

// Peers below kFirstAcceptedPeer are those to which the sender connected, the others connected to it.
void LocalFleet::Post(std::size_t from, Outbox* out) {
  for (Outgoing& o : *out) {
    if (o.to.value >= kFirstAcceptedPeer) {
      const Peer seen = from == kScheduler ? kSchedulerPeer : ShardPeer(ShardId(std::uint32_t(from - kFirstShard)));
      mail_.push_back({o.to.value - kFirstAcceptedPeer, seen, std::move(o.message)});
    } else {
      const std::size_t to = o.to == kSchedulerPeer ? kScheduler : kFirstShard + o.to.value - 1;
      mail_.push_back({to, AcceptedFrom(from), std::move(o.message)});
    }
  }
  out->clear();
}

void LocalFleet::HandleCompletedWrites() {
  Outbox out;
  for (const scheduler::StoreWritten& written : std::exchange(manifests_->written, {}))
    if (!scheduler_dead_) scheduler_->OnWritten(written, now_, &out);
  Post(kScheduler, &out);
}

void LocalFleet::Deliver() {
  HandleCompletedWrites();
  while (!mail_.empty()) {
    Mail mail = std::move(mail_.front());
    mail_.pop_front();
    Outbox out;
    if (mail.to == kWorker) {
      net::Received received{mail.from, std::move(mail.message)};
      if (ack_delay_ != 0 && std::holds_alternative<PushAck>(received.message.body))
        delayed_.emplace_back(calls_ + ack_delay_, std::move(received));
      else
        inbox_.push_back(std::move(received));
    } else if (mail.to == kScheduler) {
      if (!scheduler_dead_) scheduler_->OnMessage(mail.from, std::move(mail.message), now_, &out);
    } else {
      server::Shard& shard = *shards_.at(mail.to - kFirstShard);
      shard.OnMessage(mail.from, std::move(mail.message), now_, &out);
      for (CheckpointPart& part : std::exchange(written_, {})) shard.OnCheckpointWritten(std::move(part), now_, &out);
    }
    Post(mail.to, &out);
    HandleCompletedWrites();
  }
}

void LocalFleet::PassTime() {
  now_ += kStepUs;
  Outbox out;
  if (!scheduler_dead_ && scheduler_->NextTimer() <= now_) scheduler_->OnTimer(now_, &out);
  Post(kScheduler, &out);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i]->ended() || shards_[i]->NextTimer() > now_) continue;
    shards_[i]->OnTimer(now_, &out);
    Post(kFirstShard + i, &out);
  }
  Deliver();
}

bool LocalFleet::Settle() {
  const auto over = [this] {
    return scheduler_->stopped() && std::ranges::all_of(shards_, [](const auto& shard) { return shard->stopped(); });
  };
  Deliver();
  for (int i = 0; i < kSettleSteps && !over(); ++i) PassTime();
  return over();
}

void LocalFleet::Send(Peer to, const Message& message) {
  const std::string kind(BodyName(message.body));
  Outbox out = {{to, message}};
  Post(kWorker, &out);
  if (++sent_[kind] > 1 || kind != stop_at_) return;
  Deliver();
  RequestStop();
}

std::size_t LocalFleet::Receive(std::vector<net::Received>* out, std::size_t max, std::int64_t timeout_us) {
  ++calls_;
  for (; !delayed_.empty() && delayed_.front().first <= calls_; delayed_.pop_front())
    inbox_.push_back(std::move(delayed_.front().second));
  Deliver();
  if (timeout_us > 0 && slow_by_.count() != 0 && !sent_.contains(slow_until_)) std::this_thread::sleep_for(slow_by_);
  if (inbox_.empty() && timeout_us > 0) {
    std::unique_lock lock(mutex_);
    const bool woken = changed_.wait_for(lock, kIdle, [this] { return woken_; });
    woken_ = false;
    lock.unlock();
    if (!woken) PassTime();
  }
  const std::size_t count = std::min(max, inbox_.size());
  for (std::size_t i = 0; i < count; ++i) {
    out->push_back(std::move(inbox_.front()));
    inbox_.pop_front();
  }
  return count;
}

void LocalFleet::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

}  // namespace tarn::testing
