// What one turn of a shard's loop hands to its shard: the messages that have come, in order, and between them its
// timer. A turn may take long (its messages may be bundles), but a cut goes on and heartbeats go out meanwhile. No
// thread of its own; the shard's thread.
#pragma once

#include <functional>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "net/transport.h"
#include "server/shard/shard.h"

namespace tarn::server {

// How often, at least, a turn looks at the shard's timer between two messages.
inline constexpr TimeUs kTurnTimerUs = 2'000;

// Moves the messages of `batch` out. `clock` gives the time and never goes back; `flush` sends what is in `out` and
// empties it, called as soon as large answers wait. Returns the last time that the shard has seen.
TimeUs HandOver(std::vector<net::Received>* batch, Shard* shard, const std::function<TimeUs()>& clock, Outbox* out,
                const std::function<void()>& flush);

}  // namespace tarn::server
