// Cuts of the row store: the rows as they were at one moment, copied in slices between pushes. A walk goes through the
// partitions in order; a row that a push is about to change before the walk has come to it is copied first, and, with a
// memory budget, such copies are put aside on disk as soon as they are many. A bit a row says which were; another two
// which changed since the last cut, and until it since the base.
#include <algorithm>
#include <utility>

#include "core/limits.h"
#include "server/row_store_impl.h"

namespace tarn::server {

namespace {

// What a slice pays for a partition, however little there is in it.
constexpr std::size_t kPartitionCost = 64;
// And for a row that need not be copied.
constexpr std::size_t kLookCost = 16;
// Rows of a slice whose lines are on their way.
constexpr std::size_t kAhead = 8;
// Rows on disk that are put into the order in which they lie there, before they are read: sorting them takes a few
// milliseconds.
constexpr std::size_t kColdWindow = 65536;

// Keys removed of a chunk.
constexpr std::size_t kRemovedChunk = limits::kCutSliceBytes / sizeof(Key);

// Rows that changed early wait in many partitions at once, so their chunks are small.
constexpr std::size_t kEarlyChunkBytes = std::size_t{16} << 10, kEarlyChunkBytesMin = 1024;

std::size_t ChunkRows(std::size_t chunk_bytes, std::uint64_t rows, std::size_t row_bytes) {
  return std::min<std::uint64_t>(rows, std::max<std::size_t>(1, chunk_bytes / row_bytes));
}

}  // namespace

std::vector<TableRows> RowStore::BeginCut(CutRequest request) {
  TARN_CHECK(!cutting_, "one cut at a time");
  aside_known_ = KnowsChanges(request.base_is_previous_cut);
  changed_known_ = true;
  if (!aside_known_) ForgetRemoved();
  std::vector<TableRows> heads;
  for (const auto& table : tables_) {
    if (!table) continue;
    MoveChangesAside(*table, request);
    heads.push_back({table->spec, table->salt, table->row_words(), table->RowCount(), {}});
    table->cut.resize(options_.owned.size());
    for (std::uint32_t place = 0; place < table->cut.size(); ++place)
      table->cut[place] = {
          .open = true,
          .rows = table->NumberEnd(place),
          .verdicts = table->is_dense() || !table->sparse[place] ? Verdicts{} : table->sparse[place]->verdicts,
          .state = nullptr};
  }
  cutting_ = cut_begun_ = true;
  cut_request_ = request;
  cut_hash_ = 0;
  cut_table_ = 0;
  cut_place_ = 0;
  return heads;
}

// What changed since the base of this cut is set aside; what changes from now on is counted anew.
void RowStore::MoveChangesAside(Table& table, const CutRequest& request) {
  for (DensePartition& partition : table.dense) {
    if (!request.base_is_previous_cut) partition.changed.Merge(partition.aside);
    partition.aside = std::exchange(partition.changed, {});
  }
  for (const auto& partition : table.sparse) {
    if (!partition) continue;
    if (!request.base_is_previous_cut) partition->changed.Merge(partition->aside);
    partition->aside = std::exchange(partition->changed, {});
    partition->removed.BeginCut(request.base_is_previous_cut);
  }
}

std::size_t RowStore::RemovedKeysMax() const {
  return std::max<std::size_t>(1, options_.removed_keys_max >> options_.partition_bits);
}

bool RowStore::KnowsChanges(bool base_is_previous_cut) const {
  if (!changed_known_) return false;
  if (base_is_previous_cut) return true;
  const auto fits = [this](const auto& partition) {
    return !partition || partition->removed.since_base() <= RemovedKeysMax();
  };
  return aside_known_ &&
         std::ranges::all_of(tables_, [&](const auto& t) { return !t || std::ranges::all_of(t->sparse, fits); });
}

// Where every cut is full, or only says a hash, no base ever follows that would clear what is remembered. What is there
// stays until the next cut begins: one may be handing it out.
void RowStore::NoteRemoved(SparsePartition& partition, Key key) {
  if (!(loaded_ || cut_begun_) || !changed_known_) return;
  changed_known_ = partition.removed.since_cut() < RemovedKeysMax();
  if (changed_known_) partition.removed.Add(partition.index, key);
}

// A key that had been removed has a row again; a cut that names it has it before.
void RowStore::NoteBack(Table& table, std::uint32_t place, Key key) {
  RemovedKeys& removed = table.sparse[place]->removed;
  if (removed.Take(key) != RemovedKeys::When::kBeforeCut || cut_request_.scope != CutScope::kChanged) return;
  if (table.cut.empty() || !table.cut[place].open) return;
  PartitionCut& cut = table.cut[place];
  if (removed.IsBehind(cut.Touched().removed_walk, key)) return;
  ChunkOf(table, cut, true).removed.push_back(key);
}

void RowStore::ForgetRemoved() {
  for (const auto& table : tables_)
    if (table)
      for (const auto& partition : table->sparse)
        if (partition) partition->removed.Clear();
}

void RowStore::DropCut() {
  for (const auto& table : tables_)
    if (table) table->cut.clear();
  cutting_ = cut_waits_ = false;
  early_held_bytes_ = 0;
  if (!tier_) return;
  tier_->DropForCut();
  tier_->FreeAllAside();
}

bool RowStore::ContinueCut(std::size_t bytes, std::vector<CutRows>* out) {
  TARN_CHECK(cutting_, "no cut");
  cut_waits_ = false;
  for (std::size_t spent = 0; spent < bytes && !cut_waits_;) {
    if (cut_table_ == tables_.size()) {
      DropCut();
      cut_state_hash_ = cut_hash_;
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

// Copies up to about `bytes` of the partition that the walk is at; returns what that cost, as the bytes of copies.
std::size_t RowStore::WalkPartition(Table& table, std::size_t bytes, std::vector<CutRows>* out) {
  PartitionCut& cut = table.cut[cut_place_];
  if (!table.is_dense() && table.sparse[cut_place_] && !(cut.state && cut.state->lists_out))
    if (const std::size_t listed = HandOutLists(table, cut, bytes, out); listed != 0 || !cut.state->lists_out)
      return listed;
  std::size_t cost = 0;
  if (cut.rows != 0 && !cut.Touched().done()) {
    const std::size_t rows = std::max<std::size_t>(1, bytes / table.row_bytes());
    cost = table.is_dense() ? WalkDense(table, cut, rows, out) : WalkSparse(table, cut, rows, out);
    if (!cut.state->done()) return cost;
  }
  return cost + HandOutEarly(table, cut, bytes - std::min(bytes, cost), out);
}

// The walk is through: hands out what is left of it, and about `bytes` of what did not wait for it, which may be as
// much as the partition has rows. Returns how many; when that was all, the partition is done.
std::size_t RowStore::HandOutEarly(Table& table, PartitionCut& cut, std::size_t bytes, std::vector<CutRows>* out) {
  std::size_t handed = 0;
  if (cut.state) {
    if (PartitionRows& last = cut.state->chunk; !last.keys.empty() || !last.removed.empty())
      out->push_back({table.spec.id, std::exchange(last, {})});
    std::vector<PartitionRows>& chunks = cut.state->early;
    for (; handed < bytes && !chunks.empty(); chunks.pop_back()) {
      handed += ByteCount(chunks.back());
      early_held_bytes_ -= HeldBytes(chunks.back());
      out->push_back({table.spec.id, std::move(chunks.back())});
    }
    if (!chunks.empty()) return handed;
    if (!cut.state->aside.ids.empty()) return handed + HandOutAside(table, cut, out);
  }
  cut = {};
  ++cut_place_;
  return handed;
}

// The keys of a partition that have no row: those counted, and then those removed since the base, slice by slice.
// Returns what that cost, as the bytes of copies.
std::size_t RowStore::HandOutLists(Table& table, PartitionCut& cut, std::size_t bytes, std::vector<CutRows>* out) {
  SparsePartition& partition = *table.sparse[cut_place_];
  KeepSeen(table, cut_place_);
  PartitionCut::State& state = cut.Touched();
  PartitionRows lists{.partition = options_.owned[cut_place_],
                      .keys = {},
                      .rows = {},
                      .removed = {},
                      .seen = std::exchange(state.seen, {})};
  const bool wanted = cut_request_.scope == CutScope::kChanged;
  const std::size_t looked_at =
      partition.removed.Continue(&state.removed_walk, std::max<std::size_t>(1, bytes / kLookCost), [&](Key key) {
        if (wanted) lists.removed.push_back(key);
      });
  state.lists_out = state.removed_walk.done;
  if (cut_request_.hash_all)
    for (const Seen& seen : lists.seen) cut_hash_ += SeenHash(table.salt, seen);
  const std::size_t listed = lists.removed.size() * sizeof(Key) + lists.seen.size() * sizeof(Seen);
  if (listed != 0) out->push_back({table.spec.id, std::move(lists)});
  return listed + looked_at * kLookCost;
}

std::size_t RowStore::WalkDense(Table& table, PartitionCut& cut, std::size_t rows, std::vector<CutRows>* out) {
  const DensePartition& partition = table.dense[cut_place_];
  PartitionCut::State& state = *cut.state;
  const std::uint64_t first = state.next, end = std::min<std::uint64_t>(cut.rows, first + rows);
  std::size_t copied = 0;
  for (; state.next < end; ++state.next)
    copied +=
        Keep(table, cut, state.next, partition.range.KeyAt(state.next), table.DenseRow(partition, state.next), out);
  state.walk.done = end == cut.rows;
  return (end - first) * kLookCost + copied * table.row_bytes();
}

std::size_t RowStore::WalkSparse(Table& table, PartitionCut& cut, std::size_t rows, std::vector<CutRows>* out) {
  const SparsePartition& partition = *table.sparse[cut_place_];
  PartitionCut::State& state = *cut.state;
  if (state.cold.rows.size() >= kColdWindow || (state.walk.done && !state.cold.rows.empty()))
    return WalkCold(table, cut, out);
  found_.clear();
  std::size_t seen = 0;
  partition.index.Continue(&state.walk, rows, [&](Key key, std::uint32_t number) {
    ++seen;
    if (number >= cut.rows || state.settled.Test(number)) return;
    if (cut_request_.hash_all || !cut.verdicts.empty() || IsWanted(table, cut_place_, number))
      found_.emplace_back(key, number);
  });
  for (std::size_t i = 0; i < found_.size(); ++i) {
    if (i + kAhead < found_.size()) __builtin_prefetch(partition.Row(found_[i + kAhead].second));
    const auto [key, number] = found_[i];
    const RowParts row = table.SparseRow(partition, number);
    if (row.values != nullptr || !NeedsValues(table, cut_place_, number, row))
      Keep(table, cut, number, key, row, out);
    else
      state.cold.rows.push_back({table.resident->cold_id(cut_place_, number), number, key});
  }
  return seen * kLookCost + found_.size() * table.row_bytes();
}

// Copies a row that is about to change or to go, if a cut that has it has not copied it yet.
void RowStore::KeepFirst(Table& table, std::uint32_t place, std::uint64_t number, Key key, const RowParts& row) {
  if (table.cut.empty() || !table.cut[place].open || number >= table.cut[place].rows) return;
  if (row.values != nullptr || !NeedsValues(table, place, number, row)) {
    Keep(table, table.cut[place], number, key, row, nullptr);
  } else if (!table.cut[place].Touched().settled.Test(number)) {
    Keep(table, table.cut[place], number, key, ColdRow(table, place, static_cast<std::uint32_t>(number)), nullptr);
  }
}

// Whether the cut looks at the row's values.
bool RowStore::NeedsValues(const Table& table, std::size_t place, std::uint64_t number, const RowParts& row) const {
  const Verdicts& verdicts = table.cut[place].verdicts;
  if (!verdicts.empty() && verdicts.Expired(*table.rules, *row.life)) return false;
  return cut_request_.hash_all || IsWanted(table, place, number);
}

// A row that is born is in no cut, though its number may have been.
void RowStore::LeaveOut(Table& table, std::uint32_t place, std::uint64_t number) {
  if (table.cut.empty() || !table.cut[place].open || number >= table.cut[place].rows) return;
  table.cut[place].Touched().settled.Set(number);
}

// Copies what is counted of keys without a row before it changes, if a cut is to have it.
void RowStore::KeepSeen(Table& table, std::uint32_t place) {
  if (table.cut.empty() || !table.cut[place].open || !table.sparse[place]->candidates) return;
  PartitionCut::State& state = table.cut[place].Touched();
  if (std::exchange(state.lists_kept, true)) return;
  state.seen = table.sparse[place]->candidates->All();
}

bool RowStore::IsWanted(const Table& table, std::size_t place, std::uint64_t number) const {
  if (cut_request_.scope == CutScope::kAll) return true;
  return table.is_dense() ? table.dense[place].aside.Test(number) : table.sparse[place]->aside.Test(number);
}

// Hands a row to the cut, once: into the walk's chunk; without `out` the walk is not here yet. Whether it was not done.
bool RowStore::Keep(const Table& table, PartitionCut& cut, std::uint64_t number, Key key, const RowParts& row,
                    std::vector<CutRows>* out) {
  if (!cut.verdicts.empty() && cut.verdicts.Expired(*table.rules, *row.life))
    return KeepGone(table, cut, number, key, out);
  const bool wanted = IsWanted(table, static_cast<std::size_t>(&cut - table.cut.data()), number);
  if (!wanted && !cut_request_.hash_all) return false;
  PartitionCut::State& state = cut.Touched();
  if (state.settled.Test(number)) return false;
  state.settled.Set(number);
  if (cut_request_.hash_all) cut_hash_ += HashOf(table, key, row);
  if (wanted) CopyRow(table, cut, key, row, out);
  return true;
}

// A row that had expired when the cut began is handed out as a key removed.
bool RowStore::KeepGone(const Table& table, PartitionCut& cut, std::uint64_t number, Key key,
                        std::vector<CutRows>* out) {
  if (cut_request_.scope == CutScope::kAll || cut.Touched().settled.Test(number)) return false;
  cut.state->settled.Set(number);
  PartitionRows& to = ChunkOf(table, cut, out == nullptr);
  to.removed.push_back(key);
  if (out != nullptr && to.removed.size() == kRemovedChunk) out->push_back({table.spec.id, std::exchange(to, {})});
  return true;
}

// Where memory is bounded, one for each partition must have room.
std::size_t RowStore::EarlyChunkBytes() const {
  if (!tier_) return kEarlyChunkBytes;
  const std::size_t each = tier_->HeldForCutMax() / (options_.owned.size() * tables_.size());
  return std::clamp(each, kEarlyChunkBytesMin, kEarlyChunkBytes);
}

// Memory that a chunk of rows takes.
std::size_t RowStore::HeldBytes(const PartitionRows& chunk) {
  return chunk.keys.capacity() * sizeof(Key) + chunk.rows.capacity() * sizeof(std::uint32_t);
}

// What the cut under way holds of rows that wait, and of what it knows of the others.
std::uint64_t RowStore::CutBytes() const {
  std::uint64_t bytes = early_held_bytes_;
  for (const auto& table : tables_) {
    if (!table) continue;
    for (const PartitionCut& cut : table->cut) {
      if (!cut.state) continue;
      const PartitionCut::State& state = *cut.state;
      bytes += state.settled.memory_bytes() + state.aside.ids.capacity() * sizeof(ColdId) +
               state.cold.rows.capacity() * sizeof(ColdWalk::Row) + state.seen.capacity() * sizeof(Seen) +
               HeldBytes(state.chunk) + state.early.capacity() * sizeof(PartitionRows);
    }
  }
  return bytes;
}

std::size_t RowStore::ChunkRowsMax(const Table& table, const PartitionCut& cut, bool early) const {
  return ChunkRows(early ? EarlyChunkBytes() : limits::kCutSliceBytes, cut.rows, table.row_bytes());
}

// The chunk that takes the next row of a partition: the walk's, or of those that wait for the walk.
PartitionRows& RowStore::ChunkOf(const Table& table, PartitionCut& cut, bool early) {
  PartitionCut::State& state = cut.Touched();
  const std::size_t capacity = ChunkRowsMax(table, cut, early);
  const auto full = [capacity](const PartitionRows& chunk) {
    return chunk.keys.size() >= capacity || chunk.removed.size() == kRemovedChunk;
  };
  if (early && (state.early.empty() || full(state.early.back()))) state.early.emplace_back();
  PartitionRows& chunk = early ? state.early.back() : state.chunk;
  chunk.partition = options_.owned[static_cast<std::size_t>(&cut - table.cut.data())];
  return chunk;
}

// Rows copied early take so much more memory.
void RowStore::CountEarly(std::size_t bytes) {
  early_held_bytes_ += bytes;
  if (tier_ && tier_->MustPutAside(early_held_bytes_)) PutEarlyAside();
}

// The walk's chunk leaves through `out` when it is full.
void RowStore::CopyRow(const Table& table, PartitionCut& cut, Key key, const RowParts& row, std::vector<CutRows>* out) {
  const bool early = out == nullptr;
  const std::size_t capacity = ChunkRowsMax(table, cut, early);
  if (early) cut_early_bytes_ += table.row_bytes();
  PartitionRows& to = ChunkOf(table, cut, early);
  const std::size_t held = HeldBytes(to);
  if (to.keys.empty()) {
    to.keys.reserve(capacity);
    to.rows.reserve(capacity * table.row_words());
  }
  to.keys.push_back(key);
  AppendRecord(table, row, &to.rows);
  if (early) return CountEarly(HeldBytes(to) - held);
  if (to.keys.size() < capacity) return;
  out->push_back({table.spec.id, std::exchange(to, {})});
}

}  // namespace tarn::server
