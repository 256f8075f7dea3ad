#include "server/shard/soft_state.h"

#include "core/hash.h"
#include "server/shard/data_message.h"
#include "server/shard/logged_inputs.h"
#include "server/shard/watermark_table.h"

namespace tarn::server {

LoggedHead SoftState::Head() const {
  LoggedHead head{.partition_bits = rows.partition_bits(),
                  .view = ViewOf(view, newest_order),
                  .minimum = clocks.minimum(),
                  .watermarks = WatermarksOf(rows),
                  .hash = Hash(),
                  .rows_clock = rows.expiry().clock(),
                  .rows_seconds = rows.expiry().seconds()};
  for (const auto& [incarnation, m] : clocks.cohort().members())
    head.members.push_back({incarnation, m.tick, m.position, m.pushed, m.earlier});
  for (const auto& [clock, bucket] : clocks.buckets().buckets()) head.gathered += bucket.contributions.size();
  return head;
}

void SoftState::BeginSegment(CheckpointId cut, DurableOutbox* outbox) const {
  if (!outbox->logging()) return;
  outbox->BeginSegment(cut, Head());
  for (const auto& [clock, bucket] : clocks.buckets().buckets())
    for (const Contribution& c : bucket.contributions) outbox->Append(GatheredOf(clock, c, *rows.FindTable(c.table)));
}

// Skips clocks below the minimum clock: they are closed now, or will be before the next input.
std::uint64_t SoftState::BucketsHash() const {
  std::uint64_t state = 0;
  for (const auto& [clock, bucket] : clocks.buckets().buckets())
    for (const Contribution& c : bucket.contributions)
      if (clock >= clocks.minimum())
        for (std::uint64_t word :
             {clock.value, std::uint64_t{c.table.value}, std::uint64_t{c.partition.value}, c.incarnation.value,
              c.sequence.value, std::uint64_t{c.count} | std::uint64_t(c.action) << 32})
          state = HashCombine(state, word);
  return state;
}

std::uint64_t SoftState::Hash() const {
  std::uint64_t state = HashCombine(clocks.minimum().value, BucketsHash());
  auto add = [&state](auto... words) { ((state = HashCombine(state, words)), ...); };
  add(view.version.value, newest_order.value);
  for (const auto& [incarnation, member] : clocks.cohort().members()) {
    add(incarnation.value, member.entry.rank.value, std::uint64_t(member.entry.state), member.entry.join.value,
        member.entry.end.value, member.tick.value, member.position.lease.value, member.position.rows,
        member.pushed.value);
    for (const TickPoint& point : member.earlier)
      add(point.clock.value, point.position.lease.value, point.position.rows);
  }
  for (const auto& [incarnation, watermarks] : WatermarksOf(rows)) {
    add(incarnation.value);
    for (Sequence watermark : watermarks) add(watermark.value);
  }
  return state;
}

std::uint64_t SoftState::VersionsHash() const {
  std::uint64_t state = 0;
  for (const PartitionId partition : rows.owned())
    for (const auto& [table, version] : rows.Find(partition)->versions())
      for (std::uint64_t word : {std::uint64_t{partition.value}, std::uint64_t{table.value}, version.value})
        state = HashCombine(state, word);
  return state;
}

}  // namespace tarn::server
