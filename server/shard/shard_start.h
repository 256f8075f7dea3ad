// Starts a shard at Welcome: makes its parts, and loads their state from a checkpoint or a log. Free functions; the
// shard's thread.
#pragma once

#include <memory>

#include "core/error.h"
#include "core/job/job.h"
#include "core/message.h"
#include "server/shard/shard_parts.h"

namespace tarn::server {

// Makes the parts for the job and the partitions that the routes give the shard, without tables and rows. kMalformed:
// the routes do not name an owner for each partition. Other errors are those of the tier that the job asks for.
Expected<std::unique_ptr<ShardParts>> MakeParts(const ShardBase& base, const Job& job, const RouteMap& routes);

// Loads the state that the Welcome names into new parts: the tables and the rows of a checkpoint or, in a job of
// durability "log", the state that the log holds; inputs are logged from then on. The error names what is missing or
// damaged, and what the user can do.
Status StartState(const ShardBase& base, const Job& job, const Welcome& welcome, ShardParts* parts);

}  // namespace tarn::server
