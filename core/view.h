// The scheduler's view of the fleet: the route map and the membership (View of schemas/wire.fbs). Only the scheduler
// makes views. It sends the newest one, completely, to every node until the node has confirmed its version. Everything
// in it is state, not an event, so a lost or repeated view does no harm. docs/protocol.md specifies how views change.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"
#include "wire_objects.h"

namespace tarn {

inline ShardId OwnerOf(const RouteMap& routes, PartitionId partition) { return routes.owners[partition.value]; }

// Even placement: partition p of P goes to shard p * shards / P.
std::vector<ShardId> EvenOwners(std::uint32_t partition_bits, std::uint32_t shards);

// While a proposal is open, a worker may tick this many clocks past the clock that it has reported (rule M1).
inline constexpr std::uint64_t kProposalSlack = 8;

}  // namespace tarn
