#include "sim/closings.h"

#include <fmt/format.h>

namespace tarn::sim {

std::string Closings::OnClosed(Clock clock, std::uint32_t divisor, std::span<const server::Contribution> counted,
                               std::uint32_t backups, const Cohorts& cohorts) {
  if (divisor + backups < cohorts.SizeAt(clock) || divisor > cohorts.BeyondAt(clock))
    return fmt::format(
        "clock {} was closed with the mean over {} workers: {} belong to it, {} have finished it, and {} "
        "may be left out",
        clock.value, divisor, cohorts.SizeAt(clock), cohorts.BeyondAt(clock), backups);
  std::map<PartitionId, Closed> closed;
  for (const server::Contribution& c : counted) {
    if (!cohorts.IsBeyond(c.incarnation, clock))
      return fmt::format("clock {} was closed with a gradient of incarnation {}, which had not finished it",
                         clock.value, c.incarnation.value);
    Closed& of = closed[c.partition];
    of.divisor = divisor;
    of.counted.insert(c.incarnation);
  }
  for (auto& [partition, of] : closed) {
    const auto [known, added] = closed_.try_emplace(std::pair(partition, clock), of);
    if (!added && known->second != of)
      return fmt::format("partition {}: clock {} was closed again, with other workers or another divisor",
                         partition.value, clock.value);
  }
  return {};
}

void Closings::OnRestored(Clock from, std::span<const PartitionId> partitions) {
  for (const PartitionId partition : partitions)
    closed_.erase(closed_.lower_bound({partition, from}), closed_.upper_bound({partition, Clock(UINT64_MAX)}));
}

double Closings::Share(PartitionId partition, Clock clock, Incarnation worker) const {
  const auto closed = closed_.find({partition, clock});
  if (closed == closed_.end() || !closed->second.counted.contains(worker)) return 0;
  return 1.0 / closed->second.divisor;
}

}  // namespace tarn::sim
