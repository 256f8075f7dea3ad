// Reading and stepping rows, and how they are born.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/hash.h"
#include "core/limits.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/half_rows.h"
#include "kernels/initialize.h"
#include "kernels/optimizer.h"
#include "kernels/rows.h"
#include "server/exhaustion.h"
#include "server/row_store_impl.h"

namespace tarn::server {

namespace {

// How much of a row is fetched ahead; the kernels fetch the rest of long rows as they go.
constexpr std::uint32_t kPrefetchedFloats = 64;
constexpr std::uint64_t kRounding = 0x726f756e64;

[[gnu::always_inline]] inline void PrefetchForWrite(const float* row, std::uint32_t floats) {
  for (std::uint32_t i = 0; i < std::min(floats, kPrefetchedFloats); i += 16) __builtin_prefetch(row + i, 1);
}

// How many rows there are before one comes again. Few that are not the same share a bit.
std::size_t DistinctRows(std::size_t n, float* const* rows) {
  constexpr int kBitsLog2 = 12;
  std::uint64_t seen[(1 << kBitsLog2) / 64] = {};
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bit = Mix64(reinterpret_cast<std::uintptr_t>(rows[i])) >> (64 - kBitsLog2);
    if ((seen[bit / 64] >> (bit % 64) & 1) != 0 && std::find(rows, rows + i, rows[i]) != rows + i) return i;
    seen[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  return n;
}

}  // namespace

void RowStore::Table::Initialize(std::span<const Key> keys, float* rows) const {
  if (spec.row_codec == ValueCodec::kFp32) return kernels::InitializeRows(spec.initializer, salt, keys, spec.dim, rows);
  float wide[limits::kRowDimMax];
  for (const Key key : keys) {
    kernels::InitializeRow(spec.initializer, salt, key, {wide, spec.dim});
    rows[layout.value_words - 1] = 0;  // an odd last value has zero bits behind it
    kernels::EncodeValues(spec.row_codec, spec.dim, wide, reinterpret_cast<std::byte*>(rows));
    rows += layout.value_words;
  }
}

RowStore::SparsePartition& RowStore::Sparse(Table& table, std::uint32_t place) {
  auto& partition = table.sparse[place];
  if (!partition) {
    partition = std::make_unique<SparsePartition>(table.salt, options_.partition_bits, table.layout, &arena_, &pages_);
    partition->resident = table.resident;
    partition->place = place;
  }
  return *partition;
}

RowStore::DensePartition& RowStore::BornDense(Table& table, std::uint32_t place) {
  DensePartition& partition = table.dense[place];
  if (partition.values != nullptr) return partition;
  const std::size_t rows = partition.range.count;
  auto* values = static_cast<float*>(arena_.Allocate(rows * table.spec.dim * sizeof(float)));
  partition.slots = static_cast<float*>(arena_.Allocate(rows * table.layout.slot_words * sizeof(float)));
  for (std::size_t i = 0; i < rows; i += kGroupKeys) {
    Key keys[kGroupKeys];
    const std::size_t n = std::min(kGroupKeys, rows - i);
    for (std::size_t j = 0; j < n; ++j) keys[j] = partition.range.KeyAt(i + j);
    table.Initialize({keys, n}, values + i * table.spec.dim);
  }
  for (std::size_t i = 0; i < rows; ++i)
    kernels::InitSlots(table.spec.optimizer, table.spec.dim, partition.slots + i * table.layout.slot_words);
  partition.values = values;
  return partition;
}

// The next keys, with their lines of the index on the way.
void RowStore::TakeKeys(const Table& table, Cursor* cursor, Group* group) const {
  group->keys = cursor->keys();
  for (std::size_t i = 0; i < group->n;) {
    std::uint32_t place = 0;
    const std::size_t end = i + cursor->Next(group->n - i, &place);
    while (i < end) group->places[i++] = place;
  }
  if (!table.is_dense()) FindBuckets(table, group);
}

void RowStore::FindBuckets(const Table& table, Group* group) const {
  static constexpr RowBucket kNoKeys{};
  group->comings = comings_;
  for (std::size_t i = 0; i < group->n;) {
    const std::uint32_t place = group->places[i];
    const SparsePartition* partition = table.sparse[place].get();
    for (; i < group->n && group->places[i] == place; ++i) {
      group->buckets[i] =
          partition == nullptr ? &kNoKeys : partition->index.HomeOf(partition->index.Hash(group->keys[i]));
      __builtin_prefetch(group->buckets[i]);
    }
  }
}

// Where a row lies. Inlined by force, as all that does little but prefetch: GCC takes such a function for one without
// effect, and drops the calls.
[[gnu::always_inline]] inline float* RowStore::BringNear(const Table& table, Ahead ahead,
                                                         const SparsePartition& partition, std::uint32_t number) {
  const bool all = ahead == Ahead::kRows;
  float* row = partition.Row(number);
  PrefetchForWrite(row, table.layout.value_words + (all ? table.layout.slot_words : 0));
  if (all) partition.changed.Prefetch(number);
  if (table.has_life() && (all || !partition.verdicts.empty())) __builtin_prefetch(partition.Life(number), 1);
  return row;
}

// The rows of the keys that lie in their first buckets, with the rows on the way; of the others, the next bucket.
void RowStore::FindNear(const Table& table, Ahead ahead, Group* group) const {
  group->n_further = 0;
  if (table.is_dense()) return;
  if (group->comings != comings_) FindBuckets(table, group);
  for (std::size_t i = 0, end = 0; i < group->n; i = end) {
    const std::uint32_t place = group->places[i];
    for (end = i + 1; end < group->n && group->places[end] == place;) ++end;
    const SparsePartition* partition = table.sparse[place].get();
    if (partition == nullptr || partition->NumberEnd() == 0) {
      std::fill(group->numbers + i, group->numbers + end, RowIndex::kNone);
      std::fill(group->rows + i, group->rows + end, nullptr);
    } else if (table.resident != nullptr) {
      FindNearInTier(table, *partition, i, end, group);
    } else {
      FindNearInMemory(table, ahead, *partition, i, end, group);
    }
  }
}

// Keys i to `end` - 1 of a group, which are of one partition.
void RowStore::FindNearInMemory(const Table& table, Ahead ahead, const SparsePartition& partition, std::size_t i,
                                std::size_t end, Group* group) const {
  const bool all = ahead == Ahead::kRows;
  const std::uint32_t floats = table.layout.value_words + (all ? table.layout.slot_words : 0);
  std::uint32_t* further = group->further + group->n_further;
  const std::size_t n = LocateRows(partition.slabs, std::min(floats, kPrefetchedFloats), end - i, group->keys + i,
                                   group->buckets + i, group->numbers + i, group->rows + i, further);
  for (std::size_t j = 0; j < n; ++j) further[j] += static_cast<std::uint32_t>(i);
  group->n_further += n;
  const bool lives = table.has_life() && (all || !partition.verdicts.empty());
  if (!all && !lives) return;
  for (; i < end; ++i) {
    const std::uint32_t number = group->rows[i] != nullptr ? group->numbers[i] : 0;
    if (all) partition.changed.Prefetch(number);
    if (lives) __builtin_prefetch(partition.Life(number), 1);
  }
}

// Here only the words are brought near that tell where the rows are.
void RowStore::FindNearInTier(const Table& table, const SparsePartition& partition, std::size_t i, std::size_t end,
                              Group* group) const {
  ProbeBuckets(end - i, group->keys + i, group->buckets + i, group->numbers + i);
  for (; i < end; ++i) {
    const std::uint32_t number = group->numbers[i];
    group->rows[i] = nullptr;
    if (number < kRowFurther) {
      table.resident->PrefetchWord(partition.place, number);
    } else if (number == kRowFurther) {
      __builtin_prefetch(partition.index.BehindHome(partition.index.Hash(group->keys[i])));
      group->further[group->n_further++] = static_cast<std::uint32_t>(i);
    }
  }
}

// The rows of the other keys, with the rows on the way; with a tier those of all, as their words have come.
void RowStore::FindFurther(const Table& table, Ahead ahead, Group* group) const {
  const std::size_t n = group->n_further;
  Key keys[kGroupKeys];
  std::uint64_t hashes[kGroupKeys];
  const RowBucket* buckets[kGroupKeys];
  std::uint32_t numbers[kGroupKeys];
  for (std::size_t j = 0; j < n; ++j) {
    const RowIndex& index = table.sparse[group->places[group->further[j]]]->index;
    keys[j] = group->keys[group->further[j]];
    hashes[j] = index.Hash(keys[j]);
    buckets[j] = index.BehindHome(hashes[j]);
  }
  ProbeBuckets(n, keys, buckets, numbers);
  for (std::size_t j = 0; j < n; ++j) {
    const std::uint32_t i = group->further[j];
    const SparsePartition& partition = *table.sparse[group->places[i]];
    group->numbers[i] = numbers[j] != kRowFurther ? numbers[j] : partition.index.Find(hashes[j], keys[j]);
    if (group->numbers[i] == RowIndex::kNone) continue;
    if (table.resident == nullptr)
      group->rows[i] = BringNear(table, ahead, partition, group->numbers[i]);
    else
      table.resident->PrefetchWord(partition.place, group->numbers[i]);
  }
  // Numbers may be outdated by now: who works on the group looks again then.
  if (table.resident == nullptr || ahead == Ahead::kWords || group->comings != comings_) return;
  for (std::size_t i = 0; i < group->n; ++i)
    if (group->numbers[i] != RowIndex::kNone)
      group->rows[i] = BringNear(table, ahead, *table.sparse[group->places[i]], group->numbers[i]);
}

// Where the values of a group are; for absent rows, their initial values in absent_.
void RowStore::ValuesOf(const Table& table, const Group& group, const float** rows) const {
  for (std::size_t i = 0; i < group.n; ++i) {
    const std::uint32_t place = group.places[i];
    if (table.is_dense()) {
      const DensePartition& partition = table.dense[place];
      rows[i] = partition.values == nullptr ? nullptr
                                            : table.DenseRow(partition, partition.range.IndexOf(group.keys[i])).values;
    } else {
      rows[i] = group.rows[i];
      if (rows[i] == nullptr) continue;
      if (table.has_life() && Expired(table, *table.sparse[place], group.numbers[i]))
        rows[i] = nullptr;
      else if (table.resident != nullptr)
        table.resident->CountUse(place, group.numbers[i]);
    }
  }
  Key absent[kGroupKeys];
  std::size_t n_absent = 0;
  for (std::size_t i = 0; i < group.n; ++i) {
    if (rows[i] != nullptr) continue;
    if (n_absent == 0) absent_.resize(kGroupKeys * table.layout.value_words);
    rows[i] = absent_.data() + n_absent * table.layout.value_words;
    absent[n_absent++] = group.keys[i];
  }
  if (n_absent != 0) table.Initialize({absent, n_absent}, absent_.data());
}

void RowStore::Gather(TableId id, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
                      std::byte* out) const {
  const Table& table = At(id);
  const std::size_t row_bytes = CodecRowBytes(codec, table.spec.dim);
  const float* rows[kGroupKeys];
  for (Cursor cursor(place_, sections, keys); cursor.left() > 0;) {
    const std::size_t in_memory = table.resident == nullptr ? cursor.left() : BringIn(table, cursor);
    InGroups(table, Ahead::kValues, in_memory, &cursor, [&](const Group& group) {
      ValuesOf(table, group, rows);
      if (table.spec.row_codec == ValueCodec::kFp32)
        kernels::GatherRowsEncoded(codec, table.spec.dim, group.n, rows, out);
      else
        GatherHalves(table, codec, group.n, rows, out);
      out += group.n * row_bytes;
    });
  }
}

void RowStore::GatherHalves(const Table& table, ValueCodec codec, std::size_t n, const float* const* rows,
                            std::byte* out) const {
  const std::uint32_t dim = table.spec.dim;
  if (codec == table.spec.row_codec) {
    for (std::size_t i = 0; i < n; ++i) std::memcpy(out + i * dim * 2, rows[i], dim * 2);
    return;
  }
  const std::uint16_t* halves[kGroupKeys];
  for (std::size_t i = 0; i < n; ++i) halves[i] = reinterpret_cast<const std::uint16_t*>(rows[i]);
  wide_.resize(kGroupKeys * dim);
  kernels::WidenRows(table.spec.row_codec, dim, n, halves, wide_.data());
  kernels::EncodeRows(codec, dim, n, wide_.data(), out);
}

std::vector<float> RowStore::Values(TableId id, Key key) const {
  const Table& table = At(id);
  const Section section{PartitionOf(table.position(key), options_.partition_bits), 1, {}};
  TARN_CHECK(Owns(section.partition), "the row is another shard's");
  std::vector<float> values(table.spec.dim);
  Gather(id, {&section, 1}, {&key, 1}, ValueCodec::kFp32, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// A new row of a key that has none, with its initial values; its number.
std::uint32_t RowStore::BirthOf(const Table& table, SparsePartition& partition, std::uint64_t hash, Key key) {
  const std::uint32_t number = partition.index.FindOrInsert(hash, key, partition.NextNumber());
  partition.TakeNumber(table.has_life());
  const RowParts born = table.SparseRow(partition, number);
  table.Initialize({&key, 1}, born.values);
  kernels::InitSlots(table.spec.optimizer, table.spec.dim, born.slots);
  if (born.life != nullptr) CountLife(table, partition, *born.life = table.rules->Born(table.now));
  return number;
}

void RowStore::SparsePartition::TakeNumber(bool with_life) {
  const std::uint32_t number = NextNumber();
  if (resident != nullptr) resident->Add(place, number);
  if (!free.empty()) return free.pop_back();
  resident != nullptr ? void(++tier_end) : void(slabs.Add());
  if (with_life) lives.Add();
}

// The number of the row of a key that had none or one that has expired: born now. kNone if it gets none.
std::uint32_t RowStore::BearRow(Table& table, std::uint32_t place, std::uint64_t hash, Key key, Clock clock) {
  SparsePartition& partition = *table.sparse[place];
  ++comings_;
  if (const std::uint32_t old = partition.index.Find(hash, key); old != RowIndex::kNone) Take(table, place, old, key);
  if (table.has_life() && !Admit(table, place, key, clock)) return RowIndex::kNone;
  const std::uint32_t number = BirthOf(table, partition, hash, key);
  LeaveOut(table, place, number);
  NoteBack(table, place, key);
  return number;
}

// The row of key i of a group, born now if it was not; no values if it gets none.
RowStore::RowParts RowStore::RowForApply(Table& table, const Group& group, std::size_t i, Clock clock) {
  const std::uint32_t place = group.places[i];
  const Key key = group.keys[i];
  SparsePartition& partition = Sparse(table, place);
  std::uint32_t number = group.numbers[i];
  // A key that is named twice may have come or gone since.
  if (number == RowIndex::kNone || group.comings != comings_)
    number = partition.index.Find(partition.index.Hash(key), key);
  if (number == RowIndex::kNone || Expired(table, partition, number)) {
    number = BearRow(table, place, partition.index.Hash(key), key, clock);
    if (number == RowIndex::kNone) return {nullptr, nullptr, nullptr};
  } else {
    KeepFirst(table, place, number, key, table.SparseRow(partition, number));
    if (table.has_life()) Touch(table, partition, number);
    if (partition.resident != nullptr) partition.resident->MarkChanged(place, number);
  }
  partition.changed.Set(number);
  return table.SparseRow(partition, number);
}

RowStore::DensePartition& RowStore::DenseForApply(Table& table, std::uint32_t place) {
  DensePartition& partition = table.dense[place];
  if (partition.values != nullptr) return partition;
  BornDense(table, place);
  partition.changed.SetFirst(partition.range.count);
  return partition;
}

RowStore::RowParts RowStore::DenseRowForApply(Table& table, std::uint32_t place, Key key) {
  DensePartition& partition = DenseForApply(table, place);
  const std::uint64_t number = partition.range.IndexOf(key);
  const RowParts row = table.DenseRow(partition, number);
  KeepFirst(table, place, number, key, row);
  partition.changed.Set(number);
  PrefetchForWrite(row.slots, table.layout.slot_words);
  PrefetchForWrite(row.values, table.spec.dim);
  return row;
}

// Rule A5: a bit for each row of the group whose gradient is not finite, by its place in the group.
std::uint32_t RowStore::NotFinite(Table& table, const Group& group, const float* gradients) {
  static_assert(kGroupKeys == 32);
  const std::uint32_t dim = table.spec.dim;
  if (kernels::AllFinite(group.n * dim, gradients)) [[likely]]
    return 0;
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < group.n; ++i) {
    if (kernels::AllFinite(dim, gradients + i * dim)) continue;
    found |= std::uint32_t{1} << i;
    SkipNotFinite(table.spec.id, group.keys[i]);
  }
  return found;
}

void RowStore::SkipNotFinite(TableId id, Key key) {
  Table& table = const_cast<Table&>(At(id));
  ++counters_.not_finite;
  ++table.not_finite;
  table.not_finite_key = key;
}

std::vector<NotFiniteRows> RowStore::not_finite() const {
  std::vector<NotFiniteRows> found;
  for (const auto& table : tables_)
    if (table && table->not_finite != 0) found.push_back({table->spec.name, table->not_finite, table->not_finite_key});
  return found;
}

void RowStore::ForgetCounters() {
  counters_ = {};
  for (const auto& table : tables_)
    if (table) table->not_finite = 0;
}

// Steps the rows of a group; those of keys that get none, and those whose bit is in `left_out`, are left out.
void RowStore::StepGroup(Table& table, Clock clock, const Group& group, const float* gradients,
                         std::uint32_t left_out) {
  const std::uint32_t dim = table.spec.dim;
  float* values[kGroupKeys];
  float* slots[kGroupKeys];
  // A row that is there and of which nothing else has to be known or kept.
  const bool plain = !table.is_dense() && !table.has_life() && table.resident == nullptr && table.cut.empty();
  for (std::size_t i = 0; i < group.n; ++i) {
    if ((left_out >> i & 1) != 0) {
      values[i] = nullptr;
      continue;
    }
    if (plain && group.rows[i] != nullptr) {
      table.sparse[group.places[i]]->changed.Set(group.numbers[i]);
      values[i] = group.rows[i];
      slots[i] = values[i] + table.layout.value_words;
      continue;
    }
    const RowParts row = table.is_dense() ? DenseRowForApply(table, group.places[i], group.keys[i])
                                          : RowForApply(table, group, i, clock);
    values[i] = row.values;
    slots[i] = row.slots;
  }
  for (std::size_t i = 0, end = 0; i < group.n; i = end + 1) {
    for (end = i; end < group.n && values[end] != nullptr;) ++end;
    if (end != i) Step(table, clock, end - i, group.keys + i, values + i, slots + i, gradients + i * dim);
  }
}

void RowStore::Apply(TableId id, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
                     const std::byte* gradients, Clock clock, std::uint64_t push) {
  Table& table = const_cast<Table&>(At(id));
  rounding_ = HashCombine(HashCombine(table.salt ^ kRounding, clock.value), push);
  const std::uint32_t dim = table.spec.dim;
  const bool encoded = codec != ValueCodec::kFp32;
  if (encoded) decoded_.resize(kGroupKeys * dim);
  const auto step = [&](const Group& group) {
    if (encoded) kernels::DecodeRows(codec, dim, group.n, gradients, decoded_.data());
    const float* rows = encoded ? decoded_.data() : reinterpret_cast<const float*>(gradients);
    StepGroup(table, clock, group, rows, NotFinite(table, group, rows));
    gradients += group.n * CodecRowBytes(codec, dim);
  };
  try {
    for (Cursor cursor(place_, sections, keys); cursor.left() > 0;)
      InGroups(table, Ahead::kRows, table.resident == nullptr ? cursor.left() : BringIn(table, cursor), &cursor, step);
  } catch (const std::bad_alloc& e) {
    ThrowExhausted(table, e);
  }
}

// One optimizer step for each of n rows. Of a row in 16 bits that is named twice the second sees what the first did.
void RowStore::Step(const Table& table, Clock clock, std::size_t n, const Key* keys, float** values, float** slots,
                    const float* gradients) {
  const std::uint32_t dim = table.spec.dim;
  if (table.spec.row_codec == ValueCodec::kFp32)
    return kernels::ApplyOptimizer(table.spec.optimizer, clock, dim, n, values, slots, gradients);
  for (std::size_t i = 0, count = 0; i < n; i += count) {
    count = DistinctRows(n - i, values + i);
    StepHalves(table, clock, count, keys + i, values + i, slots + i, gradients + i * dim);
  }
}

// Distinct rows in 16 bits: they are widened for their step.
void RowStore::StepHalves(const Table& table, Clock clock, std::size_t n, const Key* keys, float** values,
                          float** slots, const float* gradients) {
  const std::uint32_t dim = table.spec.dim;
  std::uint16_t* halves[kGroupKeys];
  float* wide[kGroupKeys];
  std::uint64_t seeds[kGroupKeys];
  wide_.resize(kGroupKeys * dim);
  for (std::size_t i = 0; i < n; ++i) {
    halves[i] = reinterpret_cast<std::uint16_t*>(values[i]);
    wide[i] = wide_.data() + i * dim;
    seeds[i] = HashCombine(rounding_, keys[i]);
  }
  kernels::WidenRows(table.spec.row_codec, dim, n, halves, wide_.data());
  kernels::ApplyOptimizer(table.spec.optimizer, clock, dim, n, wide, slots, gradients);
  kernels::NarrowRows(table.spec.row_codec, dim, n, wide_.data(), seeds, halves);
}

void RowStore::ThrowExhausted(const Table& table, const std::bad_alloc& reason) const {
  const std::string more =
      table.is_dense() ? fmt::format("a partition of its {} rows, born whole", table.spec.rows) : "more rows";
  throw OutOfMemory(fmt::format("table '{}', {} of {} bytes each: {}; the shard holds {} rows in {} bytes",
                                table.spec.name, more, table.row_bytes(), reason.what(), row_count(), memory_bytes()));
}

// Takes away the row of a key, if it has one.
void RowStore::Forget(const Table& table, SparsePartition& partition, Key key) {
  const std::uint32_t number = partition.index.Erase(partition.index.Hash(key), key);
  if (number == RowIndex::kNone) return;
  if (table.has_life()) UncountLife(table, partition, *partition.Life(number));
  if (partition.resident != nullptr) partition.resident->Remove(partition.place, number);
  partition.free.push_back(number);
}

Candidates& RowStore::CandidatesOf(const Table& table, SparsePartition& partition) const {
  if (!partition.candidates)
    partition.candidates = std::make_unique<Candidates>(table.salt, options_.partition_bits,
                                                        limits::kCandidatesMax >> options_.partition_bits);
  return *partition.candidates;
}

}  // namespace tarn::server
