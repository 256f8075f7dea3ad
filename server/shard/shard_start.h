// Starts a shard at Welcome: creates its parts, and loads their state from a checkpoint or a log. Free functions; the
// shard's thread.
#pragma once

#include <memory>

#include "core/error.h"
#include "core/job/job.h"
#include "core/message.h"
#include "server/shard/shard_parts.h"

namespace tarn::server {

// Creates the parts for the job and the shard's partitions in `routes`, without tables and rows. kMalformed: the
// routes do not have one owner for each partition. Other errors are those of the job's tier.
Expected<std::unique_ptr<ShardParts>> MakeParts(const ShardBase& base, const Job& job, const RouteMap& routes);

// Loads the state that the Welcome names into new parts: the tables and the rows of a checkpoint or, with durability
// "log", the state in the log. Inputs are logged from then on. An error names what is missing or damaged, and what the
// user can do.
Status StartState(const ShardBase& base, const Job& job, const Welcome& welcome, ShardParts* parts);

}  // namespace tarn::server
