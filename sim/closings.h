// How shards have closed the clocks of a table with backup workers (rule C8): whose gradients count, for each
// partition.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/types.h"
#include "server/clock/contribution.h"
#include "sim/cohorts.h"

namespace tarn::sim {

class Closings {
 public:
  // A shard has closed a clock of the table with the mean of `counted` over `divisor` workers. Returns an error if more
  // than `backups` workers are left out, if a worker is counted that had not finished the clock, or if the clock was
  // closed before with other workers or another divisor: the replay of a log must reproduce the closing. Empty: no
  // error.
  std::string OnClosed(Clock clock, std::uint32_t divisor, std::span<const server::Contribution> counted,
                       std::uint32_t backups, const Cohorts& cohorts);

  // A shard has restored these partitions, whose clocks below `from` are closed, and replays its log next. Forgets the
  // closings from `from` on; the replay repeats those that were durable.
  void OnRestored(Clock from, std::span<const PartitionId> partitions);

  // The factor by which a gradient of this worker counts in a partition; 0: it came too late, or the clock is open.
  double Share(PartitionId partition, Clock clock, Incarnation worker) const;

 private:
  struct Closed {
    std::uint32_t divisor = 1;
    std::set<Incarnation> counted;
    friend bool operator==(const Closed&, const Closed&) = default;
  };
  std::map<std::pair<PartitionId, Clock>, Closed> closed_;
};

}  // namespace tarn::sim
