// The time of tables with a life, and the expiry of their rows (rules R3 to R6). Every operation treats an expired row
// as absent; its memory is freed later, in slices. Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/types.h"
#include "server/store/store_context.h"
#include "server/store/store_maps.h"
#include "server/store/sweeper.h"

namespace tarn::server {

class Expiry {
 public:
  // All arguments outlive this object.
  Expiry(const Tables& tables, const Partitions& partitions, StoreContext* context)
      : tables_(tables), partitions_(partitions), context_(context) {}

  // Sets the time of later pushes. A call that passes a boundary expires rows; the first call only sets the time.
  // Seconds count from the Unix epoch. Each call affects only the tables that count in its unit. A time before the
  // current one changes nothing.
  void AdvanceClock(Clock clock);
  void AdvanceSeconds(std::uint64_t seconds);
  // Whether a table counts in seconds, so that AdvanceSeconds has an effect.
  bool counts_seconds() const;
  // The latest times set.
  const std::optional<Clock>& clock() const { return clock_; }
  const std::optional<std::uint64_t>& seconds() const { return seconds_; }

  // Sets the time of a new table to that of the others.
  void OnTableAdded(Table* table);
  // Must be called after a partition was dropped.
  void OnPartitionDropped() { sweeper_.Restart(); }

  // Whether Sweep must be called to free memory of expired rows. False during a cut of a store with a tier: removing a
  // row that the cut has not copied yet would read it from disk, one row at a time.
  bool sweeping() const { return context_->sweeps_due != 0 && !(context_->cut.active && context_->tier != nullptr); }
  // Examines about `rows` further rows and frees the expired ones.
  void Sweep(std::size_t rows);

 private:
  void Advance(Table* table, std::uint64_t now);

  const Tables& tables_;
  const Partitions& partitions_;
  StoreContext* context_;
  Sweeper sweeper_;
  std::optional<Clock> clock_;
  std::optional<std::uint64_t> seconds_;
};

}  // namespace tarn::server
