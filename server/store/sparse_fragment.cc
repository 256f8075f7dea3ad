#include "server/store/sparse_fragment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "server/tier/resident_rows.h"

namespace tarn::server {

namespace {

// How many rows ahead cache lines are prefetched.
constexpr std::size_t kAhead = 8;
// Number of rows on disk that are read together for the hash.
constexpr std::size_t kHashedTogether = 4096;

// Whether the words are a valid RowLife. Each push makes the score at least 1.
bool IsLife(const std::uint32_t* words) {
  RowLife life;
  std::memcpy(static_cast<void*>(&life), words, sizeof life);
  return std::isfinite(life.score) && life.score >= 1;
}

}  // namespace

SparseFragment::SparseFragment(const Table& table, PartitionId partition, std::uint32_t place, StoreContext* context)
    : Fragment(table, partition, context),
      rows_(table, place, context),
      life_(table, context),
      removed_(context->removed_keys_max),
      cold_(table, rows_, &cut_, context) {}

void SparseFragment::Release() {
  if (life_.sweep_due()) --context_->sweeps_due;
  rows_.Release();
}

void SparseFragment::DropCut() {
  Fragment::DropCut();
  cold_.Clear();
  walk_.seen = std::vector<Seen>();
}

std::size_t SparseFragment::memory_bytes() const {
  return rows_.memory_bytes() + life_.memory_bytes() + marks_.memory_bytes() + removed_.memory_bytes() +
         cut_.memory_bytes() + cold_.memory_bytes() + walk_.seen.capacity() * sizeof(Seen);
}

// Inserts a row with its initial values for a key that has none. Returns its number.
std::uint32_t SparseFragment::InsertRow(std::uint64_t hash, Key key) {
  const std::uint32_t number = rows_.Insert(hash, key);
  const RowParts row = rows_.Parts(number);
  table_.Initialize({&key, 1}, row.values);
  table_.InitializeSlots(row.slots);
  if (row.life != nullptr) life_.Add(*row.life = table_.rules()->Born(table_.now()));
  return number;
}

RowParts SparseFragment::RowForApply(Key key, std::uint32_t number, Clock clock, Creation creation) {
  if (number != RowIndex::kNone && !IsExpired(number)) {
    KeepFirst(number, key);
    if (table_.has_life()) {
      RowLife& life = *rows_.Life(number);
      life_.Drop(life);
      life_.Add(life = table_.rules()->Touched(life, table_.now()));
    }
  } else {
    ++context_->insert_generation;
    if (number != RowIndex::kNone) RemoveExpiredRow(number, key);
    if (table_.has_life() && !life_.Admit(key, clock, creation, [this] { KeepSeen(); })) return {};
    number = InsertRow(rows_.index().Hash(key), key);
    cut_.LeaveOut(number);
    OnInserted(key);
  }
  MarkChanged(number);
  return rows_.Parts(number);
}

void SparseFragment::KeepFirst(std::uint32_t number, Key key) {
  cut_.KeepFirst(number, key, rows_.Parts(number), [&] { return ReadCold(number); });
}

// Reads a row from disk; the result is valid until the next call. After an error, which the context records, the row
// is undefined.
RowParts SparseFragment::ReadCold(std::uint32_t number) const {
  context_->owners.assign(1, {rows_.place(), number});
  const Status read = context_->tier->Read(table_.resident(), &context_->owners, &context_->cold_record);
  if (!read) context_->Fail(read.error());
  return rows_.PartsAt(reinterpret_cast<float*>(context_->cold_record.data() + kOwnerWords), number);
}

// Copies the counts of keys without a row before they change, if the current cut needs them.
void SparseFragment::KeepSeen() {
  if (!cut_.open() || std::exchange(walk_.seen_kept, true)) return;
  walk_.seen = life_.Waiting();
}

// Must be called when a push has inserted a row. If the key was removed before, it is no longer recorded as removed; if
// the current cut must list it as removed, the cut lists it now.
void SparseFragment::OnInserted(Key key) {
  if (removed_.Take(key) != RemovedKeys::When::kBeforeCut) return;
  if (context_->cut.request.scope != CutScope::kChanged || !cut_.open()) return;
  if (!removed_.keys().IsBehind(walk_.removed, key)) cut_.RecordRemoved(key);
}

void SparseFragment::Delete(std::span<const Key> keys) {
  for (const Key key : keys) {
    if (table_.has_life()) life_.Forget(key, [this] { KeepSeen(); });
    const std::uint32_t number = Find(key);
    if (number == RowIndex::kNone) continue;
    if (IsExpired(number)) {
      RemoveExpiredRow(number, key);
    } else {
      if (table_.has_life()) life_.Drop(*rows_.Life(number));
      RemoveRow(number, key);
    }
  }
}

// Removes a row and records its key for the next cut. Before the first cut or load the key is not recorded, because no
// base can contain it.
void SparseFragment::RemoveRow(std::uint32_t number, Key key) {
  KeepFirst(number, key);
  rows_.Erase(rows_.index().Hash(key), key);
  if (context_->has_base) removed_.Add(rows_.index(), key);
}

void SparseFragment::RemoveExpiredRow(std::uint32_t number, Key key) {
  RemoveRow(number, key);
  life_.OnExpiredRemoved();
}

void SparseFragment::RemoveExpired() {
  context_->found.clear();
  rows_.index().ForEach([this](Key key, std::uint32_t number) {
    if (IsExpired(number)) context_->found.emplace_back(key, number);
  });
  for (const auto& [key, number] : context_->found) RemoveExpiredRow(number, key);
}

void SparseFragment::RecountLife() {
  life_.ClearStandings();
  rows_.index().ForEach([this](Key, std::uint32_t number) { life_.Add(*rows_.Life(number)); });
}

std::size_t SparseFragment::Sweep(RowIndex::Walk* walk, std::size_t rows) {
  if (walk->next_hash == 0) life_.BeginSweep();
  context_->found.clear();
  std::size_t examined = 0;
  rows_.index().Continue(walk, rows, [&](Key key, std::uint32_t number) {
    ++examined;
    if (IsExpired(number)) context_->found.emplace_back(key, number);
  });
  for (const auto& [key, number] : context_->found) RemoveExpiredRow(number, key);
  if (walk->done) life_.EndSweep();
  return examined;
}

std::optional<Key> SparseFragment::KeyOf(std::uint32_t number) const {
  std::optional<Key> found;
  rows_.index().ForEach([&](Key key, std::uint32_t at) {
    if (at == number) found = key;
  });
  return found;
}

Expected<std::uint64_t> SparseFragment::StateHash() const {
  std::uint64_t sum = 0;
  rows_.index().ForEach([&](Key key, std::uint32_t number) {
    const RowParts row = rows_.Parts(number);
    if (row.values != nullptr && !IsExpired(number)) sum += HashOf(key, row);
  });
  if (table_.resident() != nullptr) TARN_RETURN_IF_ERROR(HashCold(&sum));
  for (const Seen& seen : life_.Waiting()) sum += SeenHash(table_.salt(), seen);
  return sum;
}

// Adds the hashes of the rows on disk, read in their order on disk.
Status SparseFragment::HashCold(std::uint64_t* sum) const {
  struct Row {
    ColdId id;
    std::uint32_t number;
    Key key;
  };
  const ResidentRows& resident = *table_.resident();
  std::vector<Row> rows;
  rows_.index().ForEach([&](Key key, std::uint32_t number) {
    if (resident.IsCold(rows_.place(), number) && !IsExpired(number))
      rows.push_back({resident.cold_id(rows_.place(), number), number, key});
  });
  std::ranges::sort(rows, {}, &Row::id);
  std::vector<RowOwner> owners;
  std::vector<std::uint32_t> records;
  for (std::size_t first = 0; first < rows.size(); first += kHashedTogether) {
    owners.clear();
    for (std::size_t i = first; i < std::min(rows.size(), first + kHashedTogether); ++i)
      owners.push_back({rows_.place(), rows[i].number});
    TARN_RETURN_IF_ERROR(context_->tier->Read(table_.resident(), &owners, &records));
    const std::size_t words = records.size() / owners.size();
    for (std::size_t i = 0; i < owners.size(); ++i) {
      auto* values = reinterpret_cast<float*>(records.data() + i * words + kOwnerWords);
      *sum += HashOf(rows[first + i].key, rows_.PartsAt(values, owners[i].number));
    }
  }
  return {};
}

Expected<RowParts> SparseFragment::RowForLoad(Key key) {
  if (table_.resident() != nullptr) TARN_RETURN_IF_ERROR(context_->tier->Reserve(table_.resident(), 1));
  const std::uint64_t hash = rows_.index().Hash(key);
  std::uint32_t number = rows_.index().Find(hash, key);
  if (number == RowIndex::kNone)
    number = InsertRow(hash, key);
  else if (table_.resident() != nullptr)
    table_.resident()->Overwrite(rows_.place(), number);
  removed_.Take(key);
  return rows_.Parts(number);
}

Status SparseFragment::Load(std::span<const Key> keys, std::span<const std::uint32_t> records) {
  const RowLayout& layout = table_.layout();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint32_t* record = records.data() + i * table_.row_words();
    if (table_.has_life() && !IsLife(record + layout.value_words + layout.slot_words))
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("table '{}': the score of the row of key {} is below 1 or not finite", table_.spec().name,
                              keys[i]));
    const auto row = RowForLoad(keys[i]);
    if (!row) return std::unexpected(row.error());
    if (row->life != nullptr) life_.Drop(*row->life);
    table_.SetRecord(record, *row);
    if (row->life != nullptr) life_.Add(*row->life);
  }
  return {};
}

void SparseFragment::Remove(std::span<const Key> keys) {
  for (const Key key : keys) {
    const std::uint64_t hash = rows_.index().Hash(key);
    const std::uint32_t number = rows_.index().Find(hash, key);
    if (number == RowIndex::kNone) continue;
    if (table_.has_life()) life_.Drop(*rows_.Life(number));
    rows_.Erase(hash, key);
  }
}

void SparseFragment::LoadSeen(std::span<const Seen> seen) {
  for (const auto& [key, count] : seen) life_.SetWaiting(key, count);
}

void SparseFragment::BeginCut() {
  if (const CutRequest& request = context_->cut.request; request.counts_changes) {
    marks_.BeginCut(request.base_is_previous_cut);
    removed_.BeginCut(request.base_is_previous_cut);
  }
  BeginCutOf(rows_.NumberEnd(), life_.verdicts());
  walk_ = {};
  walk_.rows.done = rows_.NumberEnd() == 0;
  cold_.Clear();
}

std::size_t SparseFragment::ContinueCut(std::size_t bytes, std::vector<CutRows>* out) {
  std::size_t cost = 0;
  if (!walk_.lists_out) {
    cost = HandOutLists(bytes, out);
    if (cost != 0 || !walk_.lists_out) return cost;
  }
  if (cold_.IsFull() || (walk_.rows.done && !cold_.empty()))
    cost = cold_.Continue(out);
  else if (!walk_.rows.done)
    cost = WalkRows(std::max<std::size_t>(1, bytes / table_.row_bytes()), out);
  if (!walk_.rows.done || !cold_.empty()) return cost;
  return cost + cut_.HandOutRest(bytes - std::min(bytes, cost), out);
}

// Adds the keys without a row to the cut: first all counted keys, then, in slices, those removed since the base.
std::size_t SparseFragment::HandOutLists(std::size_t bytes, std::vector<CutRows>* out) {
  KeepSeen();
  PartitionRows lists{
      .partition = partition_, .keys = {}, .rows = {}, .removed = {}, .seen = std::exchange(walk_.seen, {})};
  const bool wanted = context_->cut.request.scope == CutScope::kChanged;
  const std::size_t looked_at =
      removed_.keys().Continue(&walk_.removed, std::max<std::size_t>(1, bytes / kCutLookCost), [&](Key key) {
        if (wanted) lists.removed.push_back(key);
      });
  walk_.lists_out = walk_.removed.done;
  if (context_->cut.request.hash_all)
    for (const Seen& seen : lists.seen) context_->cut.hash += SeenHash(table_.salt(), seen);
  const std::size_t listed = lists.removed.size() * sizeof(Key) + lists.seen.size() * sizeof(Seen);
  if (listed != 0) out->push_back({table_.id(), std::move(lists)});
  return listed + looked_at * kCutLookCost;
}

std::size_t SparseFragment::WalkRows(std::size_t rows, std::vector<CutRows>* out) {
  auto& found = context_->found;
  found.clear();
  std::size_t examined = 0;
  rows_.index().Continue(&walk_.rows, rows, [&](Key key, std::uint32_t number) {
    ++examined;
    if (cut_.MustVisit(number)) found.emplace_back(key, number);
  });
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i + kAhead < found.size()) __builtin_prefetch(rows_.Row(found[i + kAhead].second));
    const auto [key, number] = found[i];
    const RowParts row = rows_.Parts(number);
    if (row.values != nullptr || !cut_.NeedsValues(number, row.life))
      cut_.Keep(number, key, row, out);
    else
      cold_.Add(number, key);
  }
  return examined * kCutLookCost + found.size() * table_.row_bytes();
}

}  // namespace tarn::server
