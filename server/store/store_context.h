// State shared by the fragments of one store: memory, the tier, counters, and the current cut. Owned by the store,
// which outlives its fragments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/metrics/metric_table.h"
#include "server/store/arena.h"
#include "server/store/gradient_delays.h"
#include "server/store/page_pool.h"
#include "server/store/snapshot.h"
#include "server/tier/residency.h"

namespace tarn::server {

class FragmentCut;

struct RowCounters {
  std::uint64_t admitted = 0;    // rows inserted into tables with a life
  std::uint64_t refused = 0;     // gradients of keys that were not admitted
  std::uint64_t expired = 0;     // rows that expired
  std::uint64_t not_finite = 0;  // gradients that were skipped (rule A5)
  std::uint64_t discarded = 0;   // gradients that came too late (rule C8) or that the update rule left out
};
inline constexpr MetricField<RowCounters> kRowMetrics[] = {
    {ShardMetric("rows_admitted"), &RowCounters::admitted},
    {ShardMetric("rows_refused"), &RowCounters::refused},
    {ShardMetric("rows_expired"), &RowCounters::expired},
    {ShardMetric("rows_not_finite"), &RowCounters::not_finite},
    {ShardMetric("gradients_discarded"), &RowCounters::discarded},
};
static_assert(BindsAll(kRowMetrics));

struct CutRequest {
  CutScope scope = CutScope::kAll;
  // A kChanged cut contains what has changed since its base. True: the previous cut is the base; the caller knows that
  // it became durable. False: the base stays as it was. The first base is the loaded checkpoint; without one, all rows
  // count as changed.
  bool base_is_previous_cut = false;
  // Compute the hash of all rows at the cut, including rows that the cut does not contain.
  bool hash_all = false;
  // Whether this cut may become the base of later ones. If false, it does not affect them.
  bool counts_changes = true;
};

// The current cut, over all fragments.
struct CutContext {
  bool active = false;
  bool waits = false;  // for rows on disk
  CutRequest request;
  std::uint64_t hash = 0;                   // with hash_all: of all that was visited so far
  std::uint64_t early_bytes = 0;            // copied before the walk reached them, by all cuts so far
  std::size_t early_held_bytes = 0;         // the part of those now in memory
  std::size_t early_chunk_bytes = 0;        // capacity of one chunk of such rows
  std::vector<FragmentCut*> holding_early;  // fragments with such rows in memory
};

struct StoreContext {
  std::uint32_t partition_bits = 0;
  std::size_t removed_keys_max = 1;  // per fragment
  PagePool pages;                    // for the indices
  Arena arena;                       // for rows
  Residency* tier = nullptr;         // null: all rows stay in memory
  RowCounters counters;
  GradientDelays delays;                // of sections that name the version at which their rows were pulled
  std::uint64_t insert_generation = 0;  // incremented when a push inserts a row, or its key is not admitted
  bool has_base = false;                // after the first cut or load; from then on removed keys are recorded
  std::size_t sweeps_due = 0;           // fragments with so many expired rows that a sweep is due
  CutContext cut;
  // The first error of the tier in code that cannot return it, such as a push that must copy a row from disk for a cut.
  // Rows read after it are undefined. The caller returns the error.
  Status failure;
  // Scratch memory of the current call.
  std::vector<std::pair<Key, std::uint32_t>> found;
  std::vector<std::uint32_t> record;
  std::vector<RowOwner> owners;
  std::vector<std::uint32_t> cold_record;

  void Fail(const Error& error) {
    if (failure) failure = std::unexpected(error);
  }
};

}  // namespace tarn::server
