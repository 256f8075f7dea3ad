// Which of the sockets to a peer a message takes. Accepted peers have one: a connection of theirs is a peer each.
#pragma once

#include <compare>
#include <cstdint>

#include "core/message.h"

namespace tarn::net {

struct LaneId {
  LaneId() = default;
  // Implicit: a peer's first lane is what nearly everything takes.
  LaneId(Peer its_peer, std::uint32_t its_lane = 0) : peer(its_peer), lane(its_lane) {}

  Peer peer;
  std::uint32_t lane = 0;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};

}  // namespace tarn::net
