// Filling the row store from a checkpoint.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "server/row_store_impl.h"

namespace tarn::server {

namespace {

// Each push makes it one at least, so anything else is no row's (and its logarithm is none).
bool IsLife(const std::uint32_t* words) {
  RowLife life;
  std::memcpy(static_cast<void*>(&life), words, sizeof life);
  return std::isfinite(life.score) && life.score >= 1;
}

}  // namespace

// Place of a key's partition among the owned, or kNotOwned.
std::uint32_t RowStore::PlaceOf(const Table& table, Key key) const {
  return place_[PartitionOf(table.position(key), options_.partition_bits).value];
}

RowStore::RowParts RowStore::RowForLoad(Table& table, std::uint32_t place, Key key) {
  try {
    if (table.is_dense()) {
      const DensePartition& partition = BornDense(table, place);
      return table.DenseRow(partition, partition.range.IndexOf(key));
    }
    SparsePartition& partition = Sparse(table, place);
    if (partition.resident != nullptr) tier_->Reserve(partition.resident, 1);
    const std::uint64_t hash = partition.index.Hash(key);
    std::uint32_t number = partition.index.Find(hash, key);
    if (number == RowIndex::kNone)
      number = BirthOf(table, partition, hash, key);
    else if (partition.resident != nullptr)
      partition.resident->Overwrite(place, number);
    partition.removed.Take(key);
    return table.SparseRow(partition, number);
  } catch (const std::bad_alloc& e) {
    ThrowExhausted(table, e);
  }
}

Status RowStore::Load(TableId id, std::span<const Key> keys, std::span<const std::uint32_t> rows) {
  Table& table = const_cast<Table&>(At(id));
  TARN_CHECK(rows.size() == keys.size() * table.row_words(), "rows do not match the keys");
  TARN_CHECK(!cutting_, "nothing is loaded within a cut");
  loaded_ = true;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Key key = keys[i];
    if (table.is_dense() && key >= table.spec.rows)
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("table '{}': key {} of a dense table of {} rows", table.spec.name, key, table.spec.rows));
    const std::uint32_t place = PlaceOf(table, key);
    if (place == kNotOwned) continue;
    const std::uint32_t* from = rows.data() + i * table.row_words();
    if (table.has_life() && !IsLife(from + table.layout.value_words + table.layout.slot_words))
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("table '{}': the row of key {} has a score that no row can have", table.spec.name, key));
    const RowParts row = RowForLoad(table, place, key);
    if (row.life != nullptr) UncountLife(table, *table.sparse[place], *row.life);
    auto take = [&from](void* to, std::uint32_t words) {
      if (words != 0) std::memcpy(to, from, words * sizeof(std::uint32_t));
      from += words;
    };
    take(row.values, table.layout.value_words);
    take(row.slots, table.layout.slot_words);
    take(row.life, table.layout.life_words);
    if (row.life != nullptr) CountLife(table, *table.sparse[place], *row.life);
  }
  if (tier_) CountOthers();
  Tend(other_bytes_);
  return {};
}

Status RowStore::Remove(TableId id, std::span<const Key> keys) {
  Table& table = const_cast<Table&>(At(id));
  TARN_CHECK(!cutting_, "nothing is loaded within a cut");
  if (table.is_dense() && !keys.empty())
    return Fail(ErrorCode::kCorrupt,
                fmt::format("table '{}': key {} removed of a dense table", table.spec.name, keys.front()));
  for (const Key key : keys) {
    const std::uint32_t place = PlaceOf(table, key);
    if (place != kNotOwned && table.sparse[place]) Forget(table, *table.sparse[place], key);
  }
  return {};
}

Status RowStore::LoadSeen(TableId id, std::span<const Seen> seen) {
  Table& table = const_cast<Table&>(At(id));
  TARN_CHECK(!cutting_, "nothing is loaded within a cut");
  if (table.is_dense() && !seen.empty())
    return Fail(ErrorCode::kCorrupt,
                fmt::format("table '{}': key {} counted of a dense table", table.spec.name, seen.front().first));
  for (const auto& [key, count] : seen) {
    const std::uint32_t place = PlaceOf(table, key);
    if (place != kNotOwned) CandidatesOf(table, Sparse(table, place)).Set(key, count);
  }
  return {};
}

}  // namespace tarn::server
