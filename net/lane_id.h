// Identifies one of the connections to a peer, a lane. Accepted peers have one lane, because each of their connections
// is a separate peer.
#pragma once

#include <compare>
#include <cstdint>

#include "core/message.h"

namespace tarn::net {

struct LaneId {
  LaneId() = default;
  // Implicit, because most messages use a peer's first lane.
  LaneId(Peer its_peer, std::uint32_t its_lane = 0) : peer(its_peer), lane(its_lane) {}

  Peer peer;
  std::uint32_t lane = 0;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};

}  // namespace tarn::net
