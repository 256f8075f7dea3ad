#include "net/accepted_peers.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tarn::net {

Peer AcceptedPeers::Intern(std::string_view identity) {
  std::string key(identity);
  if (const auto found = by_identity_.find(key); found != by_identity_.end()) {
    by_peer_[found->second].last_activity = ++activity_;
    return found->second;
  }
  if (by_peer_.size() >= max_) ForgetOldest();
  const Peer peer(next_++);
  by_peer_[peer] = {key, ++activity_};
  by_identity_.emplace(std::move(key), peer);
  return peer;
}

std::string_view AcceptedPeers::IdentityOf(Peer peer) const {
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? std::string_view() : found->second.identity;
}

void AcceptedPeers::Touch(Peer peer) {
  if (const auto found = by_peer_.find(peer); found != by_peer_.end()) found->second.last_activity = ++activity_;
}

void AcceptedPeers::Forget(Peer peer) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  by_identity_.erase(found->second.identity);
  by_peer_.erase(found);
}

void AcceptedPeers::ForgetOldest() {
  std::vector<std::pair<std::uint64_t, Peer>> ages;
  ages.reserve(by_peer_.size());
  for (const auto& [peer, entry] : by_peer_) ages.emplace_back(entry.last_activity, peer);
  const auto end = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() / 8 + 1);
  std::nth_element(ages.begin(), end - 1, ages.end());
  std::for_each(ages.begin(), end, [this](const auto& age) { Forget(age.second); });
}

}  // namespace tarn::net
