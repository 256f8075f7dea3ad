#include "server/tier/cold_gate.h"

#include <unordered_set>
#include <utility>

namespace tarn::server {

std::size_t ColdGate::BytesOf(const Message& message) {
  return sizeof(Waiting) + message.keys.size() + message.values.size();
}

bool ColdGate::Add(Peer from, Message* message, FetchTicket ticket) {
  const std::size_t bytes = BytesOf(*message);
  if (waiting_.size() >= messages_max_ || bytes_ + bytes > bytes_max_) return false;
  bytes_ += bytes;
  ++peers_[from];
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
    if (--peers_[one.from] == 0) peers_.erase(one.from);
    ready.push_back(std::move(one));
  }
  waiting_ = std::move(left);
  return ready;
}

}  // namespace tarn::server
