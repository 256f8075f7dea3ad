// Maps the ZeroMQ identities (bytes chosen by ZeroMQ or by the peer) of peers that connected to this node's ROUTER to
// numbers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/message.h"
#include "core/types.h"

namespace tarn::net {

// Whether the peer connected to this node. If not, this node connected to the peer.
inline bool IsAccepted(Peer peer) { return peer.value >= kFirstAcceptedPeer; }

// Not thread-safe. Has at most `max` peers. When it is full, it removes the eighth of them that was silent for longest.
class AcceptedPeers {
 public:
  explicit AcceptedPeers(std::size_t max) : max_(max) {}

  // The peer of an identity, from which a message has arrived; an unknown identity gets a new number. Numbers are not
  // reused.
  Peer Intern(std::string_view identity);
  // Empty if unknown or removed. Valid until the next Intern or Forget.
  std::string_view IdentityOf(Peer peer) const;
  // Records activity of the peer on another channel.
  void Touch(Peer peer);
  void Forget(Peer peer);
  std::size_t size() const { return by_peer_.size(); }

 private:
  struct Entry {
    std::string identity;
    std::uint64_t last_activity = 0;  // value of activity_ at its last message
  };
  void ForgetOldest();

  std::size_t max_;
  std::uint64_t next_ = kFirstAcceptedPeer;
  std::uint64_t activity_ = 0;  // counts the messages of all peers
  std::unordered_map<Peer, Entry> by_peer_;
  std::unordered_map<std::string, Peer> by_identity_;
};

}  // namespace tarn::net
