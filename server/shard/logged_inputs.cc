#include "server/shard/logged_inputs.h"

#include <algorithm>
#include <cstring>

#include "server/shard/data_message.h"

namespace tarn::server {

namespace {

// Copies the rows of the sections that were accepted. Returns the end of the copies.
std::byte* CopyTaken(const std::vector<Section>& sections, const std::vector<bool>& taken, std::size_t row_bytes,
                     const std::byte* from, std::byte* to) {
  for (std::size_t s = 0; s < taken.size(); ++s) {
    const std::size_t bytes = sections[s].count * row_bytes;
    if (taken[s] && bytes != 0) {
      std::memcpy(to, from, bytes);
      to += bytes;
    }
    from += bytes;
  }
  return to;
}

}  // namespace

LoggedPush TakenOf(const Sender& sender, Clock clock, const PushPart& push, std::span<const Key> keys,
                   const std::vector<bool>& taken, const TableSpec& table) {
  LoggedPush out{sender.incarnation, WorkerRank(sender.rank), clock, push};
  if (std::ranges::find(taken, false) == taken.end()) return out;
  const std::vector<Section>& sections = push.keys.sections;
  out.push.keys = {.codec = KeyCodec::kRaw};
  for (std::size_t s = 0; s < taken.size(); ++s) {
    if (!taken[s]) continue;
    out.push.keys.sections.push_back(sections[s]);
    out.push.keys.count += sections[s].count;
  }
  const std::size_t pulled_bytes = push.pulled ? RowBytes(table, *push.pulled) : 0;
  const std::size_t gradient_bytes = PushRowBytes(table, push) - pulled_bytes;
  out.push.keys.frame = Buffer::Allocate(out.push.keys.count * sizeof(Key));
  out.push.values = Buffer::Allocate(out.push.keys.count * (gradient_bytes + pulled_bytes));
  CopyTaken(sections, taken, sizeof(Key), reinterpret_cast<const std::byte*>(keys.data()), out.push.keys.frame.data());
  std::byte* to = CopyTaken(sections, taken, gradient_bytes, push.values.data(), out.push.values.data());
  CopyTaken(sections, taken, pulled_bytes, push.values.data() + keys.size() * gradient_bytes, to);
  return out;
}

LoggedGathered GatheredOf(Clock clock, const Contribution& c, const TableSpec& table) {
  LoggedGathered out{{.incarnation = c.incarnation, .rank = c.rank, .clock = clock, .push = {}}};
  PushPart& push = out.push.push;
  push.table = c.table;
  push.pulled_clock = c.pulled_clock;
  push.codec = c.codec;
  push.action = c.action;
  push.keys = {.codec = c.key_codec,
               .first_key = c.first_key,
               .count = c.count,
               .sections = {{c.partition, c.count, c.sequence, c.version}}};
  if (c.key_codec == KeyCodec::kRaw) push.keys.frame = c.keys.Slice(c.key_offset * sizeof(Key), c.count * sizeof(Key));
  push.values = c.values.Slice(c.value_offset, c.count * PushRowBytes(table, push));
  return out;
}

LoggedView ViewOf(const View& view, CheckpointId newest_order) {
  const CheckpointOrder& order = view.checkpoint;
  return {view.version, view.workers, view.tables, std::max(newest_order, order.id),
          order.at_clock ? order.clock : Clock(0)};
}

}  // namespace tarn::server
