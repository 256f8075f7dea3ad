#include "server/shard/held_answers.h"

#include <algorithm>
#include <iterator>

namespace tarn::server {

void HeldAnswers::Add(LogSequence until, Outgoing outgoing) {
  const auto alike = [&](const Held& held) {
    return held.outgoing.to == outgoing.to && held.outgoing.message.body.index() == outgoing.message.body.index();
  };
  const auto newest = std::find_if(queue_.rbegin(), queue_.rend(), alike);
  if (newest != queue_.rend() &&
      (newest->until == until || std::find_if(std::next(newest), queue_.rend(), alike) != queue_.rend()))
    queue_.erase(std::next(newest).base());
  queue_.push_back({until, std::move(outgoing)});
}

void HeldAnswers::AddAnswer(LogSequence until, Outgoing outgoing, Incarnation worker, bool first) {
  if (first && queue_.size() < answers_max_) {
    queue_.push_back({until, std::move(outgoing)});
    return;
  }
  if (const auto* tick = std::get_if<TickAck>(&outgoing.message.body)) {
    const auto [it, added] = ticks_.try_emplace(worker, HeldTick{until, outgoing.to, tick->clock});
    HeldTick& held = it->second;
    held.to = outgoing.to;
    if (!added && tick->clock > held.clock) held = {until, outgoing.to, tick->clock};
    return;
  }
  const auto& ack = std::get<PushAck>(outgoing.message.body);
  for (const SectionAck& section : ack.sections) AddSection(until, outgoing.to, ack.request, worker, section);
}

// A rejection does not replace an acknowledgement, because the rejected push is sent again. Neither does an
// acknowledgement of an earlier push.
void HeldAnswers::AddSection(LogSequence until, Peer to, RequestId request, Incarnation worker, SectionAck section) {
  const auto [it, added] = acks_.try_emplace({worker, section.partition}, HeldAck{until, to, request, section});
  if (added) return;
  HeldAck& held = it->second;
  held.to = to;
  held.request = request;
  const bool acknowledges = held.section.code == ErrorCode::kOk;
  if (acknowledges && (section.code != ErrorCode::kOk || section.sequence <= held.section.sequence)) return;
  // Keeps the held rejection, which has the reason: a later sequence of the same partition, such as the push's section
  // of the next table, is out of order because the held one was rejected.
  if (!acknowledges && section.code == ErrorCode::kOutOfOrder && section.sequence > held.section.sequence) return;
  held.until = until;
  held.section = section;
}

void HeldAnswers::TakeDurable(LogSequence synced, const std::function<void(Outgoing)>& pass,
                              const std::function<void(Peer, Body)>& make) {
  for (; !queue_.empty() && queue_.front().until <= synced; queue_.pop_front())
    pass(std::move(queue_.front().outgoing));
  for (auto it = acks_.begin(); it != acks_.end();) {
    if (it->second.until > synced) {
      ++it;
      continue;
    }
    make(it->second.to, PushAck{it->second.request, {it->second.section}});
    it = acks_.erase(it);
  }
  for (auto it = ticks_.begin(); it != ticks_.end();) {
    if (it->second.until > synced) {
      ++it;
      continue;
    }
    make(it->second.to, TickAck{it->second.clock});
    it = ticks_.erase(it);
  }
}

void HeldAnswers::Clear() {
  queue_.clear();
  acks_.clear();
  ticks_.clear();
}

}  // namespace tarn::server
