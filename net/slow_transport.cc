#include "net/slow_transport.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/hash.h"
#include "kernels/draw.h"

namespace tarn::net {
namespace {

constexpr std::size_t kHeaderBytes = 120, kSectionBytes = 24;
constexpr TimeUs kTimerUs = 1'000;  // the inner Receive waits for whole milliseconds

std::size_t SectionsOf(const Body& body) {
  std::size_t sections = 0;
  if (const auto* pull = std::get_if<Pull>(&body))
    for (const PullPart& table : pull->tables) sections += table.keys.sections.size();
  if (const auto* push = std::get_if<Push>(&body))
    for (const PushPart& table : push->tables) sections += table.keys.sections.size();
  if (const auto* ack = std::get_if<PushAck>(&body)) sections = ack->sections.size();
  return sections;
}

TimeUs Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// Messages may stay in arriving_ beyond the next Receive, but their payloads may be valid only until then.
void OwnPayloads(Message* message) {
  const auto own = [](Buffer& buffer) { buffer = Buffer::Copy(buffer.data(), buffer.size()); };
  ForEachPayload(*message, own, own);
}

}  // namespace

std::size_t BytesOf(const Message& message) {
  return kHeaderBytes + kSectionBytes * SectionsOf(message.body) + PayloadBytes(message);
}

SlowTransportOptions SlowNetwork(const Job& job, Role role, std::uint64_t rank) {
  const std::uint64_t node = HashCombine(static_cast<std::uint64_t>(role), rank);
  return {.latency =
              [latency = job.delays.latency, rng = SplitMix(HashCombine(job.job.seed, node))]() mutable {
                return static_cast<TimeUs>(kernels::Draw(latency, &rng) * 1e6);
              },
          .us_per_byte = UsPerByte(job.delays)};
}

double UsPerByte(const DelaysSection& delays) { return delays.gbit_per_second > 0 ? 8e-3 / delays.gbit_per_second : 0; }

SlowTransport::~SlowTransport() {
  for (const auto& [due, outgoing] : waiting_) inner_->Send(outgoing.to, outgoing.message);
}

void SlowTransport::Send(Peer to, const Message& message) {
  const TimeUs now = Now();
  const double sent = Pass(&out_free_at_, double(now), double(BytesOf(message)) * options_.us_per_byte);
  TimeUs& due = last_sent_[to];
  due = std::max(due, TimeUs(std::llround(sent)) + options_.latency());
  waiting_.emplace(due, Outgoing{to, message});
  SendDue(now);
}

void SlowTransport::SendDue(TimeUs now) {
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    inner_->Send(waiting_.begin()->second.to, waiting_.begin()->second.message);
    waiting_.erase(waiting_.begin());
  }
}

// Returns how long to wait for the first message that is due, at most `timeout_us`; below 0: without limit.
std::int64_t SlowTransport::Wait(TimeUs now, std::int64_t timeout_us) const {
  std::int64_t wait = timeout_us;
  const auto until = [&](TimeUs due) {
    const std::int64_t left = std::max<TimeUs>(due - now, 0);
    wait = wait < 0 ? left : std::min(wait, left);
  };
  if (!waiting_.empty()) until(waiting_.begin()->first);
  if (!arriving_.empty()) until(arriving_.front().first);
  return wait;
}

std::size_t SlowTransport::Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) {
  const std::size_t before = out->size();
  SendDue(Now());
  std::int64_t wait = Wait(Now(), timeout_us);
  if (wait > 0 && wait < kTimerUs && wait != timeout_us) {
    std::this_thread::sleep_for(std::chrono::microseconds(wait));
    wait = 0;
  }
  received_.clear();
  inner_->Receive(&received_, max, wait);
  const TimeUs now = Now();
  SendDue(now);
  for (Received& received : received_) {
    const double us = double(BytesOf(received.message)) * options_.us_per_byte;
    OwnPayloads(&received.message);
    // The message arrived byte by byte, so its first byte arrived `us` earlier.
    arriving_.emplace_back(TimeUs(std::llround(Pass(&in_free_at_, double(now) - us, us))), std::move(received));
  }
  Deliver(now, out, max);
  return out->size() - before;
}

void SlowTransport::Deliver(TimeUs now, std::vector<Received>* out, std::size_t max) {
  for (std::size_t n = 0; n < max && !arriving_.empty() && arriving_.front().first <= now; ++n) {
    out->push_back(std::move(arriving_.front().second));
    arriving_.pop_front();
  }
}

}  // namespace tarn::net
