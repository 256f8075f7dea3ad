#include "server/tier/cold_gate.h"

#include <algorithm>
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
  of_peer.messages.push_back(next_);
  of_peer.requests.insert(RequestOf(*message));
  const Waiting& one = waiting_.emplace(next_, Waiting{from, std::move(*message), ticket}).first->second;
  if (ticket == kNotBegun)
    not_begun_.push_back(next_);
  else
    NoteFirst(next_, one);
  ++next_;
  return true;
}

// The fetch of a message has begun: if it is its peer's first, its end is waited for.
void ColdGate::NoteFirst(Number number, const Waiting& one) {
  if (one.ticket != kNotBegun && peers_.at(one.from).messages.front() == number) firsts_.emplace(one.ticket, number);
}

std::vector<ColdGate::Waiting> ColdGate::Take(std::vector<Number> ready) {
  std::ranges::sort(ready);
  std::vector<Waiting> taken;
  for (Number number : ready) {
    Waiting one = std::move(waiting_.extract(number).mapped());
    bytes_ -= BytesOf(one.message);
    peers_.at(one.from).requests.erase(RequestOf(one.message));
    taken.push_back(std::move(one));
  }
  for (const Waiting& one : taken)
    if (const auto of_peer = peers_.find(one.from); of_peer != peers_.end() && of_peer->second.messages.empty())
      peers_.erase(of_peer);
  return taken;
}

}  // namespace tarn::server
