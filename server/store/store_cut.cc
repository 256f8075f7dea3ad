#include "server/store/store_cut.h"

#include <algorithm>

namespace tarn::server {

namespace {

// Minimum cost of a fragment in a slice, in bytes.
constexpr std::size_t kFragmentCost = 64;
// Capacity of a chunk of rows that a cut copies early.
constexpr std::size_t kEarlyChunkBytes = std::size_t{16} << 10, kEarlyChunkBytesMin = 1024;

std::uint64_t RowsOf(const Table& table, const Partition& partition) {
  const Fragment* fragment = partition.Find(table.id());
  return fragment != nullptr ? fragment->row_count() : 0;
}

TableRows HeadOf(const Table& table) { return {table.spec(), table.salt(), table.row_words(), 0, {}}; }

}  // namespace

void StoreCut::Prepare(const CutRequest& request) {
  TARN_CHECK(!active(), "one cut at a time");
  CutContext& cut = context_->cut;
  cut.active = true;
  cut.waits = false;
  cut.request = request;
  cut.hash = 0;
  cut.early_chunk_bytes = kEarlyChunkBytes;
  if (context_->tier != nullptr && !tables_.empty()) {
    // With a memory bound, one chunk for each fragment must fit.
    const auto owned = std::ranges::count_if(partitions_, [](const auto& partition) { return partition != nullptr; });
    const std::size_t fragments = std::max<std::size_t>(1, static_cast<std::size_t>(owned)) * tables_.size();
    cut.early_chunk_bytes =
        std::clamp(context_->tier->cut().held_bytes_max() / fragments, kEarlyChunkBytesMin, kEarlyChunkBytes);
  }
  table_ = partition_ = 0;
}

std::vector<TableRows> StoreCut::Begin(CutRequest request) {
  Prepare(request);
  context_->has_base = true;
  std::vector<TableRows> heads;
  for (const auto& table : tables_) {
    if (!table) continue;
    heads.push_back(HeadOf(*table));
    for (const auto& partition : partitions_)
      if (partition) heads.back().state_rows += RowsOf(*table, *partition);
  }
  for (const auto& partition : partitions_)
    if (partition) partition->BeginCut();
  return heads;
}

std::vector<TableRows> StoreCut::BeginSnapshot(PartitionId id) {
  Prepare({.scope = CutScope::kAll, .counts_changes = false});
  Partition& partition = *partitions_[id.value];
  std::vector<TableRows> heads;
  for (const auto& table : tables_) {
    if (!table) continue;
    heads.push_back(HeadOf(*table));
    heads.back().state_rows = RowsOf(*table, partition);
  }
  partition.BeginCut();
  return heads;
}

bool StoreCut::KnowsChanges(bool base_is_previous_cut) const {
  return std::ranges::all_of(
      partitions_, [&](const auto& partition) { return !partition || partition->KnowsChanges(base_is_previous_cut); });
}

void StoreCut::Drop() {
  for (const auto& partition : partitions_)
    if (partition) partition->DropCut();
  CutContext& cut = context_->cut;
  cut.active = cut.waits = false;
  cut.early_held_bytes = 0;
  cut.holding_early.clear();
  if (context_->tier != nullptr) context_->tier->cut().Drop();
}

// The current fragment of the walk, in order of table and partition; null: the walk is complete.
Fragment* StoreCut::Next() {
  for (; table_ < tables_.size(); ++table_, partition_ = 0) {
    if (!tables_[table_]) continue;
    for (; partition_ < partitions_.size(); ++partition_) {
      const Partition* partition = partitions_[partition_].get();
      Fragment* fragment = partition != nullptr ? partition->Find(tables_[table_]->id()) : nullptr;
      if (fragment != nullptr && fragment->cut().open()) return fragment;
    }
  }
  return nullptr;
}

Status StoreCut::Continue(std::size_t bytes, std::vector<CutRows>* out) {
  TARN_CHECK(active(), "no cut");
  context_->cut.waits = false;
  for (std::size_t spent = 0; spent < bytes && !context_->cut.waits;) {
    Fragment* fragment = Next();
    if (fragment == nullptr) {
      Drop();
      state_hash_ = context_->cut.hash;
      return {};
    }
    spent += kFragmentCost + fragment->ContinueCut(bytes - spent, out);
    if (!context_->failure) return context_->failure;
  }
  return {};
}

}  // namespace tarn::server
