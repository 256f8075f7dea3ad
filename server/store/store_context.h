// What the fragments of one store share: memory, the tier below, counters, and the cut that is under way. Owned by the
// store, which outlives its fragments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/metrics/metric_table.h"
#include "server/store/arena.h"
#include "server/store/page_pool.h"
#include "server/store/snapshot.h"
#include "server/tier/residency.h"

namespace tarn::server {

class FragmentCut;

struct RowCounters {
  std::uint64_t admitted = 0;    // rows inserted into tables with a life
  std::uint64_t refused = 0;     // gradients of keys that got no row
  std::uint64_t expired = 0;     // rows
  std::uint64_t not_finite = 0;  // gradients that were skipped (rule A5)
};
inline constexpr MetricField<RowCounters> kRowMetrics[] = {
    {ShardMetric("rows_admitted"), &RowCounters::admitted},
    {ShardMetric("rows_refused"), &RowCounters::refused},
    {ShardMetric("rows_expired"), &RowCounters::expired},
    {ShardMetric("rows_not_finite"), &RowCounters::not_finite},
};
static_assert(BindsAll(kRowMetrics));

struct CutRequest {
  CutScope scope = CutScope::kAll;
  // Whether the cut before this one, handed out whole, has become the base: what kChanged is relative to. If not, the
  // base stays what it was: the last cut for which this was set, else what was loaded, else nothing (all rows are then
  // changed). Only the caller knows which of its cuts became durable.
  bool base_is_previous_cut = false;
  // Sum the hash of all rows at the cut, also of those that are not handed out.
  bool hash_all = false;
  // Whether later cuts may count their changes from this one. If not, nothing changes for them.
  bool counts_changes = true;
};

// The cut under way, over all fragments.
struct CutContext {
  bool active = false;
  bool waits = false;  // for cold rows
  CutRequest request;
  std::uint64_t hash = 0;
  std::uint64_t early_bytes = 0;            // copied before the walk came to them, by all cuts so far
  std::size_t early_held_bytes = 0;         // of them, in memory now
  std::size_t early_chunk_bytes = 0;        // capacity of one chunk of such rows
  std::vector<FragmentCut*> holding_early;  // the fragments with such rows in memory
};

struct StoreContext {
  std::uint32_t partition_bits = 0;
  std::size_t removed_keys_max = 1;  // of one fragment
  PagePool pages;                    // of the indices
  Arena arena;                       // of rows
  Residency* tier = nullptr;         // null: all rows stay in memory
  RowCounters counters;
  std::uint64_t insert_generation = 0;  // grows when a row is inserted, and when a key is refused one
  bool has_base = false;                // there may be a checkpoint that names keys which are removed now
  std::size_t sweeps_due = 0;           // fragments with expired rows to take away
  CutContext cut;
  // The first error of the tier that was met where nothing can be returned: in the middle of a push, when a row on disk
  // has to be copied for a cut. What is read from then on is undefined; who made the call returns the error.
  Status failure;
  // Scratch of the call at hand.
  std::vector<std::pair<Key, std::uint32_t>> found;
  std::vector<std::uint32_t> record;
  std::vector<RowOwner> owners;
  std::vector<std::uint32_t> cold_record;

  void Fail(const Error& error) {
    if (failure) failure = std::unexpected(error);
  }
};

}  // namespace tarn::server
