#include "sim/push_origins.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/convert.h"

namespace tarn::sim {

void PushOrigins::OnPulled(Incarnation incarnation, Clock use, std::span<const Key> keys, std::span<const float> rows) {
  auto& values = pulled_[{incarnation, use}];
  const std::size_t dim = keys.empty() ? 0 : rows.size() / keys.size();
  for (std::size_t i = 0; i < keys.size(); ++i) values[keys[i]].insert(rows[i * dim]);
}

void PushOrigins::OnRow(PartitionId partition, Key key, Version version, float value) {
  History& row = history_[partition][key];
  if (row.empty() || row.back().second != value) row.emplace_back(version, value);
}

std::string PushOrigins::Check(Incarnation incarnation, Clock clock, const PushPart& push, const Receiver& at) const {
  for (const Section& section : push.keys.sections) {
    const Version version = at.version_of(section.partition);
    if (section.version == kNoVersion ? at.pulled_all : section.version > version)
      return fmt::format("incarnation {}: a push of clock {} to '{}' has version {} of partition {}, which is at {}",
                         incarnation.value, clock.value, at.table.name, section.version.value, section.partition.value,
                         version.value);
  }
  // The keys of held lists, delta-coded lists and ranges are not decoded here.
  const auto pulled = pulled_.find({incarnation, clock});
  if (!at.is_oracle_table || push.keys.codec != KeyCodec::kRaw || pulled == pulled_.end()) return {};
  std::string wrong = restarted_ ? std::string() : CheckVersions(pulled->second, push);
  if (wrong.empty() && push.pulled) wrong = CheckRows(pulled->second, push, at.table);
  if (wrong.empty()) return {};
  return fmt::format("incarnation {}: a push of clock {} has {}", incarnation.value, clock.value, wrong);
}

// A version is too new if a row already had a greater value in it than the value that was pulled.
std::string PushOrigins::CheckVersions(const Values& pulled, const PushPart& push) const {
  auto key = push.keys.frame.as<Key>().begin();
  for (const Section& section : push.keys.sections) {
    const auto begin = key;
    key += section.count;
    const auto history = history_.find(section.partition);
    if (section.version == kNoVersion || history == history_.end()) continue;
    for (const Key each : std::span(begin, key)) {
      const auto values = pulled.find(each);
      const auto row = history->second.find(each);
      if (values == pulled.end() || row == history->second.end()) continue;
      const auto after = std::ranges::upper_bound(row->second, section.version, {}, &History::value_type::first);
      if (after == row->second.begin() || std::prev(after)->second <= *values->second.rbegin()) continue;
      return fmt::format("version {} of partition {}, in which key {:x} was {}, but the row that was pulled is {}",
                         section.version.value, section.partition.value, each, std::prev(after)->second,
                         *values->second.rbegin());
    }
  }
  return {};
}

std::string PushOrigins::CheckRows(const Values& pulled, const PushPart& push, const TableSpec& table) const {
  const std::size_t gradients = push.keys.count * CodecRowBytes(push.codec, table.dim);
  std::vector<float> rows(std::size_t{push.keys.count} * table.dim);
  const Buffer encoded =
      Buffer::CopyOf(std::span(push.values.data(), push.values.size()).subspan(gradients));  // aligned
  kernels::DecodeRows(*push.pulled, table.dim, push.keys.count, encoded.data(), rows.data());
  const auto keys = push.keys.frame.as<Key>();
  for (std::size_t i = 0; i < push.keys.count; ++i) {
    const auto row = pulled.find(keys[i]);
    if (row == pulled.end() || !row->second.contains(rows[i * table.dim]))
      return fmt::format("{} for key {:x} as it was pulled, expected {}", rows[i * table.dim], keys[i],
                         row == pulled.end() ? "none" : fmt::format("{}", *row->second.begin()));
  }
  return {};
}

}  // namespace tarn::sim
