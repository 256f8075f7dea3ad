// The peers that we connect to, and our sockets to each: its lanes. The first carries what would only be repeated if it
// were overtaken (pushes) and all that is rare; the others carry pulls, in turns, so that these wait neither behind
// pushes nor for one socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "net/backlog.h"
#include "net/lane_id.h"
#include "net/zmq/lane.h"

namespace tarn::net {

// Owned by one thread.
class ZmqLinks {
 public:
  bool Leads(Peer peer, const std::string& endpoint) const;
  // Instead of the lanes to this peer that there were: what those have not sent is dropped.
  void Put(Peer peer, const std::string& endpoint, std::vector<Lane> lanes);
  // Null: there is no such lane.
  Lane* Find(const LaneId& id);
  // For a pull. A lane that something waits for already is passed over, while there is another.
  LaneId NextForPull(Peer peer, const Backlog& backlog);
  // Whether some peer has had more than one.
  bool has_several() const { return has_several_; }
  bool AnyMayHold() const;

  // Calls visit(id, lane) for each, always in the same order.
  template <typename Visit>
  void ForEach(Visit visit) {
    for (auto& [peer, link] : links_)
      for (std::uint32_t i = 0; i < link.lanes.size(); ++i) visit(LaneId(peer, i), link.lanes[i]);
  }

 private:
  struct Link {
    std::string endpoint;
    std::vector<Lane> lanes;
    std::uint32_t turn = 0;  // of those that carry pulls
  };

  std::map<Peer, Link> links_;
  bool has_several_ = false;
};

}  // namespace tarn::net
