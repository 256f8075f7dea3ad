// Cuts of the row store: the rows as they were at one moment, copied in slices between pushes. A walk goes through the
// partitions in order; a row that a push is about to change before the walk has come to it is copied first. A bit a
// row says which were.
#include <algorithm>
#include <utility>

#include "core/limits.h"
#include "server/row_store_impl.h"

namespace tarn::server {

namespace {

// What a slice pays for a partition, however little there is in it.
constexpr std::size_t kPartitionCost = 64;
// Rows of a slice whose lines are on their way.
constexpr std::size_t kAhead = 8;

// Rows that changed early wait in many partitions at once, so their chunks are small.
constexpr std::size_t kEarlyChunkBytes = std::size_t{16} << 10;

std::size_t ChunkRows(std::size_t chunk_bytes, std::uint64_t rows, std::size_t row_bytes) {
  return std::min<std::uint64_t>(rows, std::max<std::size_t>(1, chunk_bytes / row_bytes));
}

}  // namespace

std::vector<TableRows> RowStore::BeginCut() {
  TARN_CHECK(!cutting_, "one cut at a time");
  std::vector<TableRows> heads;
  for (const auto& table : tables_) {
    if (!table) continue;
    heads.push_back({table->spec, table->salt, table->row_floats(), {}});
    table->cut.resize(options_.owned.size());
    for (std::uint32_t place = 0; place < table->cut.size(); ++place) table->cut[place].rows = table->RowCount(place);
  }
  cutting_ = true;
  cut_table_ = 0;
  cut_place_ = 0;
  return heads;
}

void RowStore::DropCut() {
  for (const auto& table : tables_)
    if (table) table->cut.clear();
  cutting_ = false;
}

bool RowStore::ContinueCut(std::size_t bytes, std::vector<CutRows>* out) {
  TARN_CHECK(cutting_, "no cut");
  for (std::size_t spent = 0; spent < bytes;) {
    if (cut_table_ == tables_.size()) {
      DropCut();
      return true;
    }
    Table* table = tables_[cut_table_].get();
    if (table == nullptr || cut_place_ == table->cut.size()) {
      ++cut_table_;
      cut_place_ = 0;
      continue;
    }
    spent += kPartitionCost + WalkPartition(*table, bytes - spent, out);
  }
  return false;
}

// Copies up to about `bytes` of the partition that the walk is at; returns the bytes of the rows that it looked at.
std::size_t RowStore::WalkPartition(Table& table, std::size_t bytes, std::vector<CutRows>* out) {
  PartitionCut& cut = table.cut[cut_place_];
  if (cut.rows == 0) {
    ++cut_place_;
    return 0;
  }
  PartitionCut::State& state = cut.Touched();
  const std::size_t rows = std::max<std::size_t>(1, bytes / table.row_bytes());
  const std::size_t seen = table.is_dense() ? WalkDense(table, cut, rows, out) : WalkSparse(table, cut, rows, out);
  if (!state.walk.done) return seen * table.row_bytes();
  state.early.push_back(std::move(state.chunk));
  for (PartitionRows& chunk : state.early)
    if (!chunk.keys.empty()) out->push_back({table.spec.id, std::move(chunk)});
  cut = {};
  ++cut_place_;
  return seen * table.row_bytes();
}

std::size_t RowStore::WalkDense(Table& table, PartitionCut& cut, std::size_t rows, std::vector<CutRows>* out) {
  const DensePartition& partition = table.dense[cut_place_];
  PartitionCut::State& state = *cut.state;
  const std::uint64_t first = state.next, end = std::min<std::uint64_t>(cut.rows, first + rows);
  for (; state.next < end; ++state.next)
    Keep(table, cut, state.next, partition.range.KeyAt(state.next), partition.values + state.next * table.spec.dim,
         partition.slots + state.next * table.slot_floats, out);
  state.walk.done = end == cut.rows;
  return end - first;
}

std::size_t RowStore::WalkSparse(Table& table, PartitionCut& cut, std::size_t rows, std::vector<CutRows>* out) {
  const SparsePartition& partition = *table.sparse[cut_place_];
  PartitionCut::State& state = *cut.state;
  found_.clear();
  std::size_t seen = 0;
  partition.index.Continue(&state.walk, rows, [&](Key key, std::uint32_t row) {
    ++seen;
    if (row < cut.rows && !state.copied[row]) found_.emplace_back(key, row);
  });
  for (std::size_t i = 0; i < found_.size(); ++i) {
    if (i + kAhead < found_.size()) __builtin_prefetch(partition.slabs.Row(found_[i + kAhead].second));
    const float* values = partition.slabs.Row(found_[i].second);
    Keep(table, cut, found_[i].second, found_[i].first, values, values + table.spec.dim, out);
  }
  return seen;
}

// Copies a row, once. Into the walk's chunk, which leaves through `out` when it is full; without `out` the walk is not
// here yet, and the row waits for it.
void RowStore::Keep(const Table& table, PartitionCut& cut, std::uint64_t number, Key key, const float* values,
                    const float* slots, std::vector<CutRows>* out) {
  PartitionCut::State& state = cut.Touched();
  if (state.copied[number]) return;
  state.copied[number] = true;
  if (out == nullptr) cut_early_bytes_ += table.row_bytes();
  const std::size_t capacity =
      ChunkRows(out != nullptr ? limits::kCutSliceBytes : kEarlyChunkBytes, cut.rows, table.row_bytes());
  if (out == nullptr && (state.early.empty() || state.early.back().keys.size() == capacity)) state.early.emplace_back();
  PartitionRows& to = out != nullptr ? state.chunk : state.early.back();
  if (to.keys.empty()) {
    const auto place = static_cast<std::size_t>(&cut - table.cut.data());
    to.partition = options_.owned[place];
    to.keys.reserve(capacity);
    to.rows.reserve(capacity * table.row_floats());
  }
  to.keys.push_back(key);
  to.rows.insert(to.rows.end(), values, values + table.spec.dim);
  to.rows.insert(to.rows.end(), slots, slots + table.slot_floats);
  if (out == nullptr || to.keys.size() < capacity) return;
  out->push_back({table.spec.id, std::move(to)});
  to = {};
}

}  // namespace tarn::server
