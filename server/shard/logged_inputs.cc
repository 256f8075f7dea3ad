#include "server/shard/logged_inputs.h"

#include <algorithm>
#include <cstring>

namespace tarn::server {

LoggedPush TakenOf(const Push& push, const Message& message, std::span<const Key> keys, const std::vector<bool>& taken,
                   std::size_t row_bytes) {
  LoggedPush out{message.sender.incarnation, WorkerRank(message.sender.rank), push, message.keys, message.values};
  if (std::ranges::find(taken, false) == taken.end()) return out;
  out.push.keys = {.codec = KeyCodec::kRaw};
  for (std::size_t s = 0; s < taken.size(); ++s) {
    if (!taken[s]) continue;
    out.push.keys.sections.push_back(push.keys.sections[s]);
    out.push.keys.count += push.keys.sections[s].count;
  }
  out.keys = Buffer::Allocate(out.push.keys.count * sizeof(Key));
  out.values = Buffer::Allocate(out.push.keys.count * row_bytes);
  std::size_t from = 0, to = 0;
  for (std::size_t s = 0; s < taken.size(); ++s) {
    const std::size_t count = push.keys.sections[s].count;
    if (taken[s] && count != 0) {
      std::memcpy(out.keys.data() + to * sizeof(Key), keys.data() + from, count * sizeof(Key));
      std::memcpy(out.values.data() + to * row_bytes, message.values.data() + from * row_bytes, count * row_bytes);
      to += count;
    }
    from += count;
  }
  return out;
}

LoggedGathered GatheredOf(Clock clock, const Contribution& c, std::size_t row_bytes) {
  LoggedGathered out{{.incarnation = c.incarnation, .rank = c.rank}};
  Push& push = out.push.push;
  push.table = c.table;
  push.clock = clock;
  push.codec = c.codec;
  push.keys = {c.key_codec, c.first_key, c.count, {{c.partition, c.count, c.sequence}}};
  if (c.key_codec == KeyCodec::kRaw)
    out.push.keys = Buffer::Copy(c.keys.data() + c.key_offset * sizeof(Key), c.count * sizeof(Key));
  out.push.values = Buffer::Copy(c.values.data() + c.value_offset, c.count * row_bytes);
  return out;
}

LoggedView ViewOf(const View& view, CheckpointId newest_order) {
  return {view.version, view.workers, view.tables, std::max(newest_order, view.checkpoint.id)};
}

}  // namespace tarn::server
