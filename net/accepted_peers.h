// Who has connected to our ROUTER: ZeroMQ's identities (bytes that it, or a stranger, chose) as numbers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/message.h"
#include "core/types.h"

namespace tarn::net {

// Whether it connected to us; else we connected to it.
inline bool IsAccepted(Peer peer) { return peer.value >= kFirstAcceptedPeer; }

// Not thread-safe. Holds at most `max` peers: when full, the eighth of them that was unheard for longest is forgotten.
class AcceptedPeers {
 public:
  explicit AcceptedPeers(std::size_t max) : max_(max) {}

  // The peer of an identity, heard just now; a new number if it is not known. Numbers are not reused.
  Peer Intern(std::string_view identity);
  // Empty if unknown or forgotten. Valid until the next Intern or Forget.
  std::string_view IdentityOf(Peer peer) const;
  // Heard just now, in another way.
  void Touch(Peer peer);
  void Forget(Peer peer);
  std::size_t size() const { return by_peer_.size(); }

 private:
  struct Entry {
    std::string identity;
    std::uint64_t heard = 0;  // count of Interns at the last one
  };
  void ForgetOldest();

  std::size_t max_;
  std::uint64_t next_ = kFirstAcceptedPeer;
  std::uint64_t heard_ = 0;
  std::unordered_map<Peer, Entry> by_peer_;
  std::unordered_map<std::string, Peer> by_identity_;
};

}  // namespace tarn::net
