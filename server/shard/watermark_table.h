// A shard's watermarks (rules E1, E2) in the layout of its log: for each worker incarnation that has pushed, a vector
// indexed by partition of the job, with 0 for partitions of other shards. The partitions own the watermarks.
#pragma once

#include <map>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/store/store.h"

namespace tarn::server {

using WatermarkTable = std::map<Incarnation, std::vector<Sequence>>;

WatermarkTable WatermarksOf(const Store& store);
// Sets the watermarks of the store's partitions. kCorrupt: the table has another number of partitions, or a watermark
// for a partition of another shard.
Status RestoreWatermarks(const WatermarkTable& watermarks, Store* store);
void DropWatermarks(Incarnation worker, Store* store);

}  // namespace tarn::server
