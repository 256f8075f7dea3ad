#include "sim/fleet/delivery.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace tarn::sim {
namespace {

// The byte with which lent payloads are overwritten after the call, so that the checks detect receivers that keep them.
constexpr int kPoison = 0xdb;
constexpr std::uint64_t kTurnUs = 300;  // maximum time in which a loop receives messages together
constexpr TimeUs kHeartbeatUs = 200'000;

// The heartbeat of a shard that reads its log after this Welcome.
Message LoadingOf(const Message& message) {
  const Welcome& welcome = std::get<Welcome>(message.body);
  Message out;
  out.job = message.job;
  out.sender = {Role::kShard, welcome.rank, welcome.incarnation};
  out.body = Heartbeat{};
  return out;
}

}  // namespace

void Delivery::Deliver(ProcessId to, Peer from, Message message) {
  Process* process = context_.processes.Find(to);
  if (process == nullptr) return;
  if (context_.verbose) {
    const auto* error = std::get_if<ErrorReply>(&message.body);
    context_.Trace(fmt::format("{} <- {:x} {}{}", process->node, from.value, BodyName(message.body),
                               error == nullptr ? "" : fmt::format(" {}: {}", ErrorName(error->code), error->message)));
  }
  if (process->recovers_us != 0 && std::holds_alternative<Welcome>(message.body)) {
    process->paused_until = context_.now() + std::exchange(process->recovers_us, 0);
    SendLoading(to, LoadingOf(message), process->paused_until);
  }
  context_.control.Step(to, [this, to, from, message = std::move(message)](Process& p, Outbox* out) {
    Handle(p, from, message, out);
    if (!p.shard) SettleSoon(to, p, out);
  });
}

void Delivery::Handle(Process& p, Peer from, const Message& message, Outbox* out) {
  const TimeUs now = context_.clocks.NowOf(p);
  if (p.scheduler) {
    checks_->OnSchedulerReceived(message);
    p.scheduler->Handle(from, message, now);
    outages_->OnSchedulerReceived(message);
  } else if (p.shard) {
    checks_->BeforeShardReceives(from);
    DeliverLent(message, p.checker.get(), [&](Message m) { p.shard->OnMessage(from, std::move(m), now, out); });
    checks_->AfterShardReceived(p, message, *out, from);
  } else if (p.worker) {
    DeliverLent(message, nullptr, [&](Message m) { p.worker->Handle(from, std::move(m), now); });
    outages_->OnWorkerReceived(p, message);
  }
}

// Simulates server/loading_beacon.h.
void Delivery::SendLoading(ProcessId id, const Message& heartbeat, TimeUs until) {
  const Process* process = context_.processes.Find(id);
  if (context_.now() >= until || process == nullptr) return;
  checks_->OnSentToScheduler(process->node);
  context_.network.Send(id, kSchedulerPeer, heartbeat);
  context_.events.At(context_.now() + kHeartbeatUs,
                     [this, id, heartbeat, until] { SendLoading(id, heartbeat, until); });
}

// Lends half of the payloads, like payloads in shared memory, and overwrites them after the call. Changes the keys of a
// push while a shard handles it, as a worker could: the shard must have copied them before it checked them.
void Delivery::DeliverLent(const Message& message, ShardChecker* shard, const std::function<void(Message)>& hand_over) {
  if (context_.dice.turn.Chance(0.5)) return hand_over(message);
  Message lent = message;
  std::vector<std::shared_ptr<Buffer>> owners;
  std::vector<Buffer*> keys;
  const auto lend = [&owners](Buffer& payload) {
    if (payload.empty()) return;
    const auto& owner = owners.emplace_back(std::make_shared<Buffer>(Buffer::Copy(payload.data(), payload.size())));
    payload = Buffer::Lend(owner->data(), owner->size(), owner);
  };
  const auto lend_keys = [&](Buffer& payload) {
    lend(payload);
    if (!payload.empty()) keys.push_back(owners.back().get());
  };
  ForEachPayload(lent, lend_keys, lend);
  const auto poison = [](Buffer& owner) { std::memset(owner.data(), kPoison, owner.size()); };
  if (shard != nullptr && !keys.empty())
    shard->SetDuringPush([&] {
      for (Buffer* owner : keys) poison(*owner);
    });
  hand_over(std::move(lent));
  if (shard != nullptr) shard->SetDuringPush({});
  for (const auto& owner : owners) poison(*owner);
}

// Simulates a loop that receives several messages at once.
void Delivery::SettleSoon(ProcessId id, Process& p, Outbox* out) {
  const auto settle = [this](Process& process, Outbox* step_out) {
    process.settles = false;
    const TimeUs now = context_.clocks.NowOf(process);
    if (process.scheduler) process.scheduler->Settle(now, step_out);
    if (process.worker) process.worker->Settle(now, step_out);
  };
  if (p.settles) return;
  SplitMix& dice = context_.dice.turn;
  if (dice.Chance(0.7)) return settle(p, out);
  p.settles = true;
  context_.events.At(context_.now() + 1 + TimeUs(dice.Below(kTurnUs)),
                     [this, id, settle] { context_.control.Step(id, settle); });
}

}  // namespace tarn::sim
