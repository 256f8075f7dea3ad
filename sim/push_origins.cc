#include "sim/push_origins.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "kernels/convert.h"

namespace tarn::sim {

void PushOrigins::OnPulled(Incarnation incarnation, Clock use, std::span<const Key> keys, std::span<const float> rows) {
  auto& values = pulled_[{incarnation, use}];
  const std::size_t dim = keys.empty() ? 0 : rows.size() / keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i) values[keys[i]].insert(rows[i * dim]);
}

std::string PushOrigins::Check(Incarnation incarnation, Clock clock, const PushPart& push, const Receiver& at) const {
  for (const Section& section : push.keys.sections) {
    const Version version = at.version_of(section.partition);
    if (section.version == kNoVersion ? at.pulled_all : section.version > version)
      return fmt::format("incarnation {}: a push of clock {} to '{}' has version {} of partition {}, which is at {}",
                         incarnation.value, clock.value, at.table.name, section.version.value, section.partition.value,
                         version.value);
  }
  if (!push.pulled || !at.is_oracle_table) return {};
  return CheckRows(incarnation, clock, push, at.table);
}

// Checks only pushes with unencoded keys: those of held lists, delta-coded lists and ranges are not decoded here.
std::string PushOrigins::CheckRows(Incarnation incarnation, Clock clock, const PushPart& push,
                                   const TableSpec& table) const {
  if (push.keys.codec != KeyCodec::kRaw) return {};
  const auto known = pulled_.find({incarnation, clock});
  if (known == pulled_.end()) return {};
  const std::size_t gradients = push.keys.count * CodecRowBytes(push.codec, table.dim);
  std::vector<float> rows(std::size_t{push.keys.count} * table.dim);
  const Buffer encoded =
      Buffer::CopyOf(std::span(push.values.data(), push.values.size()).subspan(gradients));  // aligned
  kernels::DecodeRows(*push.pulled, table.dim, push.keys.count, encoded.data(), rows.data());
  const auto keys = push.keys.frame.as<Key>();
  for (std::size_t i = 0; i < push.keys.count; ++i) {
    const auto row = known->second.find(keys[i]);
    if (row == known->second.end() || !row->second.contains(rows[i * table.dim]))
      return fmt::format("incarnation {}: a push of clock {} has {} for key {:x} as it was pulled, expected {}",
                         incarnation.value, clock.value, rows[i * table.dim], keys[i],
                         row == known->second.end() ? "none" : fmt::format("{}", *row->second.begin()));
  }
  return {};
}

}  // namespace tarn::sim
