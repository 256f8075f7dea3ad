// The time of the tables with a life, and the rows that expire by it (rules R3 to R6). A row that has expired is as if
// it had never been, everywhere; its memory is freed later, in slices. Not thread-safe: the shard's thread owns it.
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
  // All outlive it.
  Expiry(const Tables& tables, const Partitions& partitions, StoreContext* context)
      : tables_(tables), partitions_(partitions), context_(context) {}

  // Pushes count at the time that was set last; what lies between two calls for a table is one time. The first call
  // only sets the time; later ones that pass a boundary let rows expire. Seconds are those since 1970; tables that do
  // not count in them ignore them. Earlier times than before change nothing.
  void AdvanceClock(Clock clock);
  void AdvanceSeconds(std::uint64_t seconds);
  bool counts_seconds() const;
  // The latest times set.
  const std::optional<Clock>& clock() const { return clock_; }
  const std::optional<std::uint64_t>& seconds() const { return seconds_; }

  // A table was added: its first rows are inserted at the time of the others.
  void OnTableAdded(Table* table);
  // A partition was dropped.
  void OnPartitionDropped() { sweeper_.Restart(); }

  // Whether there are expired rows whose memory is to be freed. With a tier that waits for the end of a cut, which
  // would have to read what it still wants of them row by row.
  bool sweeping() const { return context_->sweeps_due != 0 && !(context_->cut.active && context_->tier != nullptr); }
  // Looks at about `rows` rows.
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
