// The watermarks of all partitions of a shard in the form of a log: for each worker incarnation that has pushed, one
// watermark for every partition of the job (rules E1, E2). The partitions own the watermarks.
#pragma once

#include <map>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/store/store.h"

namespace tarn::server {

using WatermarkTable = std::map<Incarnation, std::vector<Sequence>>;

// 0 for the partitions of other shards.
WatermarkTable WatermarksOf(const Store& store);
// kCorrupt: the table has another number of partitions, or pushes to a partition of another shard.
Status RestoreWatermarks(const WatermarkTable& watermarks, Store* store);
void DropWatermarks(Incarnation worker, Store* store);

}  // namespace tarn::server
