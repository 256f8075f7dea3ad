// Counters of a client since it joined (worker/tarn.h: Client::counters). Plain values.
#pragma once

#include <cstdint>

namespace tarn {

struct ClientCounters {
  std::uint64_t pull_bytes = 0, push_bytes = 0;  // encoded keys and values; repeats are not counted again
  std::uint64_t pulls = 0, pushes = 0;           // each table counts; a combined push counts as one
  std::uint64_t repeats = 0;                     // messages that were sent again
  std::uint64_t unknown_lists = 0;               // key lists that a shard no longer stored
  std::uint64_t cache_rows = 0, cache_hits = 0;  // worker_cache: rows looked up, and rows found
  std::uint64_t refreshed_rows = 0;              // refresh_rows: rows of the cache that servers sent again
  std::uint64_t combined_pushes = 0;             // push_every: pushes combined with one of a later clock
  std::uint64_t malformed = 0;                   // replies that do not match their request, and invalid views
  std::uint64_t residual_rows = 0;      // gauge: rows of gradients not sent yet (rule W5); lost when the worker leaves
  std::uint64_t residuals_expired = 0;  // such rows, dropped because their row expired
  std::uint64_t residuals_crowded = 0;  // such rows, sent or dropped because residual_memory was full
  std::uint64_t skipped_clocks = 0;     // backup_workers: clocks that closed without this worker
};

}  // namespace tarn
