// The state of a shard except for its rows: view, clocks, watermarks and gathered pushes. The head of each log segment
// contains it, and a replay must reproduce it (rules L3, L5). Holds references that are valid for one call.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "core/view.h"
#include "server/log/record.h"
#include "server/shard/clocks.h"
#include "server/shard/durable_outbox.h"
#include "server/store/store.h"

namespace tarn::server {

struct SoftState {
  const View& view;
  CheckpointId newest_order;
  const Clocks& clocks;
  const Store& rows;

  std::uint64_t Hash() const;
  // Hash of the versions of partitions. Not part of Hash, which a replay compares with the head: the shard writes the
  // head before it closes the clocks that waited for the cut, but a replay may have closed them when it reads the head.
  std::uint64_t VersionsHash() const;
  LoggedHead Head() const;
  // Begins a segment of the log: the head, and the pushes that wait for their clock.
  void BeginSegment(CheckpointId cut, DurableOutbox* outbox) const;

 private:
  std::uint64_t BucketsHash() const;
};

}  // namespace tarn::server
