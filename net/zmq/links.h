// The outgoing connections: for each peer one or more sockets, called lanes. The first lane carries control messages
// and pushes, which would have to be repeated if they were reordered. The others carry pulls in turns, so that pulls
// wait neither for pushes nor for a single socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "net/backlog.h"
#include "net/lane_id.h"
#include "net/zmq/polled_socket.h"

namespace tarn::net {

// Owned by one thread.
class ZmqLinks {
 public:
  // Whether the peer has lanes, and they are connected to this endpoint.
  bool IsConnectedTo(Peer peer, const std::string& endpoint) const;
  // Replaces the lanes to this peer. Unsent messages of the old ones are dropped.
  void Put(Peer peer, const std::string& endpoint, std::vector<PolledSocket> lanes);
  // Finds a lane; null if there is none.
  PolledSocket* Find(const LaneId& id);
  // The lane for the next pull. Skips lanes with waiting messages if there is another.
  LaneId NextForPull(Peer peer, const Backlog& backlog);
  // Whether a peer has or had more than one lane.
  bool has_several() const { return has_several_; }
  // Whether any lane may have messages to receive: its socket has not been found empty since its last event.
  bool AnyMayHaveMessages() const;

  // Calls visit(id, lane) for each lane, always in the same order.
  template <typename Visit>
  void ForEach(Visit visit) {
    for (auto& [peer, link] : links_)
      for (std::uint32_t i = 0; i < link.lanes.size(); ++i) visit(LaneId(peer, i), link.lanes[i]);
  }

 private:
  struct Link {
    std::string endpoint;
    std::vector<PolledSocket> lanes;
    std::uint32_t turn = 0;  // next lane for a pull
  };

  std::map<Peer, Link> links_;
  bool has_several_ = false;
};

}  // namespace tarn::net
