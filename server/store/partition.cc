#include "server/store/partition.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::server {

Partition::Partition(PartitionId id, std::uint32_t place, StoreContext* context)
    : id_(id), place_(place), context_(context) {}

Fragment& Partition::Obtain(const Table& table) {
  const std::size_t at = table.id().value;
  if (fragments_.size() <= at) fragments_.resize(at + 1);
  if (!fragments_[at]) {
    if (table.is_dense())
      fragments_[at] = std::make_unique<DenseFragment>(table, id_, context_);
    else
      fragments_[at] = std::make_unique<SparseFragment>(table, id_, place_, context_);
  }
  return *fragments_[at];
}

Status Partition::CheckKeys(const Table& table, std::span<const Key> keys) const {
  bool all_in = true;
  if (table.is_dense()) {
    const DenseRange& range = FindDense(table.id())->range();
    for (Key key : keys) {
      if (key >= table.spec().rows) [[unlikely]]
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("table '{}': key {} of a dense table, expected keys below {}", table.spec().name, key,
                                table.spec().rows));
      all_in &= range.IndexOf(key) < range.count;
    }
  } else {
    for (Key key : keys) all_in &= table.PartitionOf(key) == id_;
  }
  if (all_in) return {};
  return Fail(ErrorCode::kWrongShard,
              fmt::format("table '{}': the section of partition {} has a key of another partition", table.spec().name,
                          id_.value));
}

void Partition::Remove(const Table& table, std::span<const Key> keys) {
  if (SparseFragment* fragment = FindSparse(table.id())) fragment->Remove(keys);
}

void Partition::LoadSeen(const Table& table, std::span<const Seen> seen) {
  static_cast<SparseFragment&>(Obtain(table)).LoadSeen(seen);
}

std::vector<std::pair<TableId, Version>> Partition::versions() const {
  std::vector<std::pair<TableId, Version>> found;
  ForEach([&](const Fragment& fragment) {
    if (fragment.version().value != 0) found.emplace_back(fragment.table().id(), fragment.version());
  });
  return found;
}

std::uint64_t Partition::row_count() const {
  std::uint64_t rows = 0;
  ForEach([&](const Fragment& fragment) { rows += fragment.row_count(); });
  return rows;
}

Expected<std::uint64_t> Partition::StateHash() const {
  std::uint64_t sum = 0;
  for (const auto& fragment : fragments_) {
    if (!fragment) continue;
    const auto hash = fragment->StateHash();
    if (!hash) return hash;
    sum += *hash + FragmentHash(fragment->table().salt(), id_, fragment->State().words);
  }
  return sum;
}

std::size_t Partition::memory_bytes() const {
  std::size_t bytes = 0;
  ForEach([&](const Fragment& fragment) { bytes += fragment.memory_bytes(); });
  return bytes;
}

bool Partition::KnowsChanges(bool base_is_previous) const {
  return std::ranges::all_of(
      fragments_, [&](const auto& fragment) { return !fragment || fragment->KnowsChanges(base_is_previous); });
}

void Partition::BeginCut() {
  ForEach([](Fragment& fragment) { fragment.BeginCut(); });
}

void Partition::DropCut() {
  ForEach([](Fragment& fragment) { fragment.DropCut(); });
}

void Partition::Release() {
  ForEach([](Fragment& fragment) { fragment.Release(); });
}

}  // namespace tarn::server
