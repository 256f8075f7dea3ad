// Makes the records of a shard's log (server/log/record.h) from messages and state. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/message.h"
#include "core/view.h"
#include "server/clock/clock_buckets.h"
#include "server/log/record.h"

namespace tarn::server {

// The accepted sections of one table of a push. If all were accepted, the record shares the message's bytes. `taken`: a
// flag for each section; `keys`: those of the table in the message.
LoggedPush TakenOf(const Sender& sender, Clock clock, const PushPart& push, std::span<const Key> keys,
                   const std::vector<bool>& taken, const TableSpec& table);

// One gathered section as a separate push.
LoggedGathered GatheredOf(Clock clock, const Contribution& contribution, const TableSpec& table);

// newest_order: the newest order of all views so far.
LoggedView ViewOf(const View& view, CheckpointId newest_order);

}  // namespace tarn::server
