// Rows on disk, when the store has a tier: what a message needs is brought into memory before it is looked at, what a
// cut needs is read beside the work and not kept.
#include <fmt/format.h>

#include <algorithm>

#include "server/exhaustion.h"
#include "server/row_store_impl.h"

namespace tarn::server {

namespace {

// How often room is made for the rows of a message alone, before it is made for as many as they could be.
constexpr int kAttempts = 4;
// Of a cut: bytes of records that are fetched together.
constexpr std::size_t kCutFetchBytes = std::size_t{256} << 10;
// What else memory is spent on is counted anew once in so many spans.
constexpr std::uint32_t kTendPeriod = 64;

}  // namespace

// The rows on disk among the next `rows` of a message. Returns how many have no row yet. `spare`: the others are not
// the next to go.
std::size_t RowStore::FindCold(const Table& table, Cursor cursor, std::size_t rows, bool spare,
                               std::vector<RowOwner>* owners) const {
  std::size_t absent = 0;
  owners->clear();
  InGroups(table, Ahead::kWords, rows, &cursor, [&](const Group& group) {
    for (std::size_t i = 0; i < group.n; ++i) {
      const RowOwner owner{group.places[i], group.numbers[i]};
      if (owner.number == RowIndex::kNone)
        ++absent;
      else if (table.resident->IsCold(owner.place, owner.number))
        owners->push_back(owner);
      else if (spare)
        table.resident->Spare(owner.place, owner.number);
    }
  });
  return absent;
}

// Makes room for the next rows of a message and reads those of them that are on disk. Returns how many rows that were:
// none of them leaves memory before they are done.
std::size_t RowStore::BringIn(const Table& table, Cursor cursor) const {
  if (++spans_ % kTendPeriod == 0) CountOthers();
  ResidentRows* resident = table.resident;
  const std::size_t rows = std::min(tier_->SpanRows(*resident), cursor.left());
  tier_->CountUses(resident, rows);
  if (resident->cold() == 0 && tier_->Grow(resident, rows)) return rows;
  // What is evicted for some of the rows may be others of them, which are then on disk too; hardly ever twice.
  bool enough = false;
  for (int attempt = 0; attempt < kAttempts && !enough; ++attempt) {
    const std::size_t absent = FindCold(table, cursor, rows, attempt != 0, &cold_);
    enough = resident->free_slots() >= absent + cold_.size();
    if (!enough && attempt != 0) tier_->Reserve(resident, absent + cold_.size());
  }
  if (!enough) {
    tier_->Reserve(resident, rows);
    FindCold(table, cursor, rows, false, &cold_);
  }
  tier_->BringIn(resident, &cold_);
  return rows;
}

FetchTicket RowStore::FetchCold(TableId id, std::span<const Section> sections, std::span<const Key> keys) {
  const Table& table = At(id);
  if (table.resident == nullptr || table.resident->cold() == 0) return 0;
  FindCold(table, Cursor(place_, sections, keys), keys.size(), false, &cold_);
  return tier_->Fetch(table.resident, cold_);
}

void RowStore::Tend(std::size_t other_bytes) {
  if (!tier_) return;
  tier_->Poll();
  other_bytes_ = other_bytes;
  tier_->SetOtherBytes(other_bytes_ + index_bytes_);
  tier_->Balance();
}

bool RowStore::HasCold(TableId id) const {
  const ResidentRows* resident = At(id).resident;
  return resident != nullptr && resident->cold() != 0;
}

// Indices, lives and marks, which grow as rows are born.
void RowStore::CountOthers() const {
  index_bytes_ = memory_bytes() - tier_->memory_bytes();
  tier_->SetOtherBytes(other_bytes_ + index_bytes_);
}

// A row whose values and slots are `words`.
RowStore::RowParts RowStore::PartsOf(const Table& table, const SparsePartition& partition, std::uint32_t number,
                                     std::uint32_t* words) const {
  auto* values = reinterpret_cast<float*>(words);
  return {values, values + table.layout.value_words, table.has_life() ? partition.Life(number) : nullptr};
}

// For an error: looks through the partition for the key.
std::string RowStore::NameOf(TableId id, RowOwner owner) const {
  const Table& table = At(id);
  if (owner.place >= options_.owned.size())
    return fmt::format("table '{}': row {} of no partition of this shard", table.spec.name, owner.number);
  const std::uint32_t partition = options_.owned[owner.place].value;
  std::optional<Key> key;
  if (const SparsePartition* rows = table.sparse[owner.place].get())
    rows->index.ForEach([&](Key at, std::uint32_t number) {
      if (number == owner.number) key = at;
    });
  if (key) return fmt::format("table '{}': key {} in partition {}", table.spec.name, *key, partition);
  return fmt::format("table '{}': row {} of partition {}, which has none", table.spec.name, owner.number, partition);
}

// A row on disk; valid until the next one.
RowStore::RowParts RowStore::ColdRow(const Table& table, std::uint32_t place, std::uint32_t number) const {
  cold_.assign(1, {place, number});
  tier_->Read(table.resident, &cold_, &cold_record_);
  return PartsOf(table, *table.sparse[place], number, cold_record_.data() + kOwnerWords);
}

// Cuts.

// Reads the rows on disk that the walk has come across, slice by slice: while one is copied, the next is on its way.
std::size_t RowStore::WalkCold(Table& table, PartitionCut& cut, std::vector<CutRows>* out) {
  ColdWalk& cold = cut.state->cold;
  if (cold.next == 0 && cold.fetching.empty()) std::ranges::sort(cold.rows, {}, &ColdWalk::Row::id);
  const std::size_t before = cold.next;
  if (!cold.fetching.empty()) {
    if (!tier_->HasForCut()) {
      cut_waits_ = true;
      return 0;
    }
    TakeCold(table, cut, out);
  }
  if (cold.next < cold.rows.size())
    FetchNext(table, cut, out);
  else
    cold = {};
  return (cold.next - std::min(before, cold.next) + 1) * table.row_bytes();
}

// Those that are still wanted: a row that was changed or removed since was copied before.
void RowStore::TakeCold(Table& table, PartitionCut& cut, std::vector<CutRows>* out) {
  ColdWalk& cold = cut.state->cold;
  const SparsePartition& partition = *table.sparse[cut_place_];
  std::vector<std::uint32_t> records;
  tier_->TakeForCut(&records);
  const std::size_t words = records.size() / cold.fetching.size();
  for (std::size_t i = 0; i < cold.fetching.size(); ++i) {
    const ColdWalk::Row& row = cold.fetching[i];
    std::uint32_t* record = records.data() + i * words;
    if (cut.state->settled.Test(row.number)) continue;
    if (record[0] != cut_place_ || record[1] != row.number)
      throw StorageFailed(tier_->AnotherRow(table.spec.id, {cut_place_, row.number}));
    Keep(table, cut, row.number, row.key, PartsOf(table, partition, row.number, record + kOwnerWords), out);
  }
  cold.fetching.clear();
}

// Rows may have come to memory since, or have moved on the disk.
void RowStore::FetchNext(Table& table, PartitionCut& cut, std::vector<CutRows>* out) {
  ColdWalk& cold = cut.state->cold;
  const SparsePartition& partition = *table.sparse[cut_place_];
  const std::size_t end =
      std::min(cold.rows.size(), cold.next + std::max<std::size_t>(1, kCutFetchBytes / table.row_bytes()));
  for (; cold.next < end; ++cold.next) {
    ColdWalk::Row row = cold.rows[cold.next];
    if (cut.state->settled.Test(row.number)) continue;
    if (const RowParts in_memory = table.SparseRow(partition, row.number); in_memory.values != nullptr) {
      Keep(table, cut, row.number, row.key, in_memory, out);
      continue;
    }
    row.id = table.resident->cold_id(cut_place_, row.number);
    cold.fetching.push_back(row);
  }
  if (cold.fetching.empty()) return;
  std::ranges::sort(cold.fetching, {}, &ColdWalk::Row::id);
  std::vector<ColdId> ids;
  for (const ColdWalk::Row& row : cold.fetching) ids.push_back(row.id);
  tier_->FetchForCut(table.resident, std::move(ids));
  tier_->Poll();  // all of it may be in memory, not yet written
}

// What was copied early.

// Partition by partition, so that what a walk reads together lies together.
void RowStore::PutEarlyAside() {
  for (const auto& table : tables_) {
    if (!table) continue;
    for (PartitionCut& cut : table->cut)
      if (cut.state && !cut.state->early.empty()) PutAside(*table, cut);
  }
}

// The rows; keys that were removed stay.
void RowStore::PutAside(const Table& table, PartitionCut& cut) {
  std::vector<PartitionRows>& early = cut.state->early;
  for (PartitionRows& chunk : early) {
    for (std::size_t i = 0; i < chunk.keys.size(); ++i)
      cut.state->aside.ids.push_back(
          tier_->PutAside(table.spec.id, table.row_words(), chunk.keys[i], chunk.rows.data() + i * table.row_words()));
    early_held_bytes_ -= HeldBytes(chunk);
    chunk.keys = {};
    chunk.rows = {};
  }
  std::erase_if(early, [](const PartitionRows& chunk) { return chunk.removed.empty(); });
}

// Of a partition through which the walk is: slice by slice, while the next is on its way. Returns what that cost, as
// the bytes of copies.
std::size_t RowStore::HandOutAside(const Table& table, PartitionCut& cut, std::vector<CutRows>* out) {
  AsideRows& aside = cut.state->aside;
  const std::size_t taken = aside.fetching;
  if (taken != 0) {
    if (!tier_->HasForCut()) {
      cut_waits_ = true;
      return 0;
    }
    TakeAside(table, cut, out);
  }
  if (aside.next < aside.ids.size())
    FetchAside(table, cut);
  else
    aside = {};
  return (taken + 1) * table.row_bytes();
}

void RowStore::TakeAside(const Table& table, PartitionCut& cut, std::vector<CutRows>* out) {
  AsideRows& aside = cut.state->aside;
  std::vector<std::uint32_t> records;
  tier_->TakeForCut(&records);
  PartitionRows rows{.partition = options_.owned[cut_place_], .keys = {}, .rows = {}, .removed = {}, .seen = {}};
  const std::size_t words = table.row_words();
  for (std::size_t i = 0; i < aside.fetching; ++i) {
    const std::uint32_t* record = records.data() + i * (kOwnerWords + words);
    const Key key = Key{record[0]} << 32 | record[1];
    if (PartitionOf(table.position(key), options_.partition_bits) != rows.partition)
      throw StorageFailed(tier_->AnotherAside(table.spec.id, key, rows.partition));
    rows.keys.push_back(key);
    rows.rows.insert(rows.rows.end(), record + kOwnerWords, record + kOwnerWords + words);
  }
  out->push_back({table.spec.id, std::move(rows)});
  tier_->FreeAside(table.spec.id, std::span(aside.ids).subspan(aside.next, aside.fetching));
  aside.next += aside.fetching;
  aside.fetching = 0;
}

void RowStore::FetchAside(const Table& table, PartitionCut& cut) {
  AsideRows& aside = cut.state->aside;
  aside.fetching =
      std::min(aside.ids.size() - aside.next, std::max<std::size_t>(1, kCutFetchBytes / table.row_bytes()));
  const auto ids = std::span(aside.ids).subspan(aside.next, aside.fetching);
  std::ranges::sort(ids);  // what lies together was put there together, but segments come in any order
  tier_->FetchAsideForCut(table.spec.id, {ids.begin(), ids.end()});
  tier_->Poll();  // all of it may be in memory, not yet written
}

}  // namespace tarn::server
