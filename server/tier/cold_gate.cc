#include "server/tier/cold_gate.h"

#include <utility>

namespace tarn::server {

std::size_t ColdGate::BytesOf(const Message& message) {
  return sizeof(Waiting) + message.keys.size() + message.values.size();
}

// 0: a tick.
RequestId ColdGate::RequestOf(const Message& message) {
  if (const auto* pull = std::get_if<Pull>(&message.body)) return pull->request;
  if (const auto* push = std::get_if<Push>(&message.body)) return push->request;
  if (const auto* both = std::get_if<PushPull>(&message.body)) return both->push.request;
  return RequestId(0);
}

bool ColdGate::HoldsRequest(Peer peer, const Message& message) const {
  const auto of_peer = peers_.find(peer);
  const RequestId request = RequestOf(message);
  return request.value != 0 && of_peer != peers_.end() && of_peer->second.requests.contains(request);
}

bool ColdGate::Add(Peer from, Message* message, FetchTicket ticket) {
  const std::size_t bytes = BytesOf(*message);
  // It comes again until it is taken: an empty gate must take it, or nobody ever does.
  if (!waiting_.empty() && (waiting_.size() >= messages_max_ || bytes_ + bytes > bytes_max_)) return false;
  bytes_ += bytes;
  OfPeer& of_peer = peers_[from];
  ++of_peer.messages;
  of_peer.requests.insert(RequestOf(*message));
  waiting_.push_back({from, std::move(*message), ticket});
  return true;
}

std::vector<ColdGate::Waiting> ColdGate::TakeReady(const Residency& tier) {
  std::vector<Waiting> ready;
  if (waiting_.empty()) return ready;
  std::unordered_set<Peer> held;
  std::deque<Waiting> left;
  for (Waiting& one : waiting_) {
    if (held.contains(one.from) || one.ticket == kNotBegun || !tier.Ended(one.ticket)) {
      held.insert(one.from);
      left.push_back(std::move(one));
      continue;
    }
    bytes_ -= BytesOf(one.message);
    OfPeer& of_peer = peers_[one.from];
    of_peer.requests.erase(RequestOf(one.message));
    if (--of_peer.messages == 0) peers_.erase(one.from);
    ready.push_back(std::move(one));
  }
  waiting_ = std::move(left);
  return ready;
}

}  // namespace tarn::server
