#include "net/zmq/links.h"

#include <algorithm>
#include <utility>

namespace tarn::net {

bool ZmqLinks::IsConnectedTo(Peer peer, const std::string& endpoint) const {
  const auto found = links_.find(peer);
  return found != links_.end() && found->second.endpoint == endpoint;
}

void ZmqLinks::Put(Peer peer, const std::string& endpoint, std::vector<PolledSocket> lanes) {
  has_several_ |= lanes.size() > 1;
  Link& link = links_[peer];
  for (PolledSocket& lane : link.lanes) lane.socket.DropUnsent();
  link = {.endpoint = endpoint, .lanes = std::move(lanes)};
}

PolledSocket* ZmqLinks::Find(const LaneId& id) {
  const auto found = links_.find(id.peer);
  return found != links_.end() && id.lane < found->second.lanes.size() ? &found->second.lanes[id.lane] : nullptr;
}

LaneId ZmqLinks::NextForPull(Peer peer, const Backlog& backlog) {
  const auto found = links_.find(peer);
  if (found == links_.end() || found->second.lanes.size() == 1) return peer;
  Link& link = found->second;
  const auto pull_lanes = static_cast<std::uint32_t>(link.lanes.size() - 1);
  LaneId id;
  for (std::uint32_t tries = 0; tries < pull_lanes; ++tries) {
    id = {peer, 1 + link.turn};
    link.turn = (link.turn + 1) % pull_lanes;
    if (!backlog.Has(id)) break;
  }
  return id;
}

bool ZmqLinks::AnyMayHaveMessages() const {
  return std::ranges::any_of(links_, [](const auto& link) {
    return std::ranges::any_of(link.second.lanes, [](const PolledSocket& lane) { return lane.may_hold; });
  });
}

}  // namespace tarn::net
