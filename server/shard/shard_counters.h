// What a shard counts, and how its heartbeats carry it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/message.h"

namespace tarn::server {

class Store;  // server/store/store.h

struct ShardCounters {
  std::uint64_t pulls = 0, pulls_parked = 0, pull_rows = 0;
  std::uint64_t pushes = 0, push_rows = 0, pushes_repeated = 0, pushes_out_of_order = 0;
  std::uint64_t refused_epoch = 0, refused_fenced = 0, refused_other = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t waited_for_rows = 0;  // messages
};

std::vector<Counter> CountersOf(const ShardCounters& counters, const Store& rows, std::size_t bucket_bytes,
                                std::size_t reply_bytes);

}  // namespace tarn::server
