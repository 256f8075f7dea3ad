#include "server/shard/shard_counters.h"

#include <utility>

#include "server/store/store.h"

namespace tarn::server {

std::vector<Counter> CountersOf(const ShardCounters& c, const Store& rows, std::size_t bucket_bytes,
                                std::size_t reply_bytes) {
  auto counter = [](const char* name, std::uint64_t value) { return Counter{name, static_cast<double>(value)}; };
  std::vector<Counter> counters = {counter("shard_pulls", c.pulls),
                                   counter("shard_pulls_parked", c.pulls_parked),
                                   counter("shard_pull_rows", c.pull_rows),
                                   counter("shard_pushes", c.pushes),
                                   counter("shard_push_rows", c.push_rows),
                                   counter("shard_pushes_repeated", c.pushes_repeated),
                                   counter("shard_pushes_out_of_order", c.pushes_out_of_order),
                                   counter("shard_refused_epoch", c.refused_epoch),
                                   counter("shard_refused_fenced", c.refused_fenced),
                                   counter("shard_refused_other", c.refused_other),
                                   counter("shard_checkpoints", c.checkpoints),
                                   counter("shard_rows", rows.row_count()),
                                   counter("shard_rows_admitted", rows.counters().admitted),
                                   counter("shard_rows_refused", rows.counters().refused),
                                   counter("shard_rows_expired", rows.counters().expired),
                                   counter("shard_rows_not_finite", rows.counters().not_finite),
                                   counter("shard_row_bytes", rows.memory_bytes()),
                                   counter("shard_bucket_bytes", bucket_bytes),
                                   counter("shard_reply_bytes", reply_bytes)};
  if (const Residency* tier = rows.tier()) {
    const ResidencyCounters& t = tier->counters();
    for (Counter& one : std::vector<Counter>{
             counter("shard_resident_rows", tier->resident_rows()), counter("shard_cold_rows", tier->cold_rows()),
             counter("shard_tier_uses", t.uses), counter("shard_tier_read_waiting", t.read_waiting),
             counter("shard_tier_fetched", t.fetched), counter("shard_tier_evicted", t.evicted),
             counter("shard_tier_bytes", tier->disk_bytes()), counter("shard_waited_for_rows", c.waited_for_rows)})
      counters.push_back(std::move(one));
  }
  return counters;
}

}  // namespace tarn::server
