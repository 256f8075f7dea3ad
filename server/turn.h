// One turn of a shard's loop: handles the received messages in order, and the shard's timer between them. A turn may
// take long, because messages may be bundles, but cuts continue and heartbeats are sent. Runs on the shard's thread.
#pragma once

#include <functional>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "net/transport.h"
#include "server/shard/shard.h"

namespace tarn::server {

// Maximum time between two checks of the shard's timer within a turn (except for long messages).
inline constexpr TimeUs kTurnTimerUs = 2'000;

// Passes the messages of `batch` to the shard and empties each one. `clock` returns the time, which never decreases.
// `flush` sends and empties `out`; it is called after the shard's timer. Returns the last time passed to the shard.
TimeUs HandOver(std::vector<net::Received>* batch, Shard* shard, const std::function<TimeUs()>& clock, Outbox* out,
                const std::function<void()>& flush);

}  // namespace tarn::server
