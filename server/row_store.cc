#include "server/row_store_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/limits.h"
#include "core/table_shape.h"
#include "kernels/convert.h"
#include "kernels/optimizer.h"
#include "kernels/rows.h"
#include "server/exhaustion.h"

namespace tarn::server {

namespace {

// Rows that are looked up together: enough to overlap the misses, few enough that what was fetched is still near.
constexpr std::size_t kGroup = 64;
// How much of a row is fetched ahead; the kernels fetch the rest of long rows as they go.
constexpr std::size_t kPrefetchedFloats = 64;

void PrefetchForWrite(const float* row, std::size_t floats) {
  for (std::size_t i = 0; i < std::min(floats, kPrefetchedFloats); i += 16) __builtin_prefetch(row + i, 1);
}

}  // namespace

RowStore::RowStore(RowStoreOptions options, std::unique_ptr<Residency> tier)
    : options_(std::move(options)), tier_(std::move(tier)) {
  TARN_CHECK(options_.partition_bits <= limits::kPartitionBitsMax, "too many partition bits");
  std::ranges::sort(options_.owned);
  place_.assign(std::size_t{1} << options_.partition_bits, kNotOwned);
  for (std::uint32_t i = 0; i < options_.owned.size(); ++i) {
    TARN_CHECK(options_.owned[i].value < place_.size(), "no such partition");
    place_[options_.owned[i].value] = i;
  }
}

RowStore::~RowStore() = default;

Status RowStore::AddTable(const TableSpec& spec) {
  TARN_RETURN_IF_ERROR(Validate(spec));
  TARN_RETURN_IF_ERROR(ValidatePartitions(spec, options_.partition_bits));
  if (spec.id.value > limits::kTablesMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("table '{}': id {} is above {}", spec.name, spec.id.value, limits::kTablesMax));
  for (const TableSpec* known : {FindTable(spec.id), FindTable(spec.name)}) {
    if (known == nullptr) continue;
    if (known->id == spec.id && known->name == spec.name && ShapeDifference(*known, "", spec, "").empty()) {
      tables_[spec.id.value]->spec = spec;
      return {};
    }
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("table '{}' (id {}): differs from the table '{}' (id {}) that exists", spec.name,
                            spec.id.value, known->name, known->id.value));
  }
  if (spec.row_codec != ValueCodec::kFp32)
    return Fail(ErrorCode::kUnsupported, fmt::format("table '{}': rows of {}", spec.name, Name(spec.row_codec)));
  auto table = std::make_unique<Table>();
  table->spec = spec;
  table->salt = TableSalt(options_.job_seed, spec.name);
  table->position = Positioner(spec, table->salt);
  table->layout = LayoutOf(spec);
  if (table->is_dense()) {
    for (PartitionId partition : options_.owned)
      table->dense.push_back({DenseRangeOf(spec.rows, table->salt, options_.partition_bits, partition)});
  } else {
    table->sparse.resize(options_.owned.size());
    if (tier_) table->resident = tier_->AddTable(spec.id, table->layout.value_words + table->layout.slot_words);
  }
  if (tables_.size() <= spec.id.value) tables_.resize(spec.id.value + 1);
  tables_[spec.id.value] = std::move(table);
  return {};
}

const TableSpec* RowStore::FindTable(TableId id) const {
  return id.value < tables_.size() && tables_[id.value] ? &tables_[id.value]->spec : nullptr;
}

const TableSpec* RowStore::FindTable(std::string_view name) const {
  for (const auto& table : tables_)
    if (table && table->spec.name == name) return &table->spec;
  return nullptr;
}

const RowStore::Table& RowStore::At(TableId id) const {
  TARN_CHECK(FindTable(id) != nullptr, "unknown table");
  return *tables_[id.value];
}

RowStore::SparsePartition& RowStore::Sparse(Table& table, std::uint32_t place) {
  auto& partition = table.sparse[place];
  if (!partition) {
    partition = std::make_unique<SparsePartition>(table.salt, options_.partition_bits, table.layout, &arena_);
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
  for (std::size_t i = 0; i < rows; ++i) {
    table.Initialize(partition.range.KeyAt(i), values + i * table.spec.dim);
    kernels::InitSlots(table.spec.optimizer, table.spec.dim, partition.slots + i * table.layout.slot_words);
  }
  partition.values = values;
  return partition;
}

Status RowStore::CheckKeys(TableId id, std::span<const Section> sections, std::span<const Key> keys) const {
  const Table& table = At(id);
  std::size_t next = 0;
  for (const Section& section : sections) {
    TARN_CHECK(section.count <= keys.size() - next, "sections do not match the keys");
    const auto mine = keys.subspan(next, section.count);
    next += section.count;
    if (!Owns(section.partition))
      return Fail(ErrorCode::kWrongShard, fmt::format("partition {} is not of this shard", section.partition.value));
    bool all_in = true;
    if (table.is_dense()) {
      const DenseRange& range = table.dense[place_[section.partition.value]].range;
      for (Key key : mine) {
        if (key >= table.spec.rows) [[unlikely]]
          return Fail(ErrorCode::kInvalidArgument, fmt::format("table '{}': key {} of a dense table of {} rows",
                                                               table.spec.name, key, table.spec.rows));
        all_in &= range.IndexOf(key) < range.count;
      }
    } else {
      for (Key key : mine) all_in &= PartitionOf(table.position(key), options_.partition_bits) == section.partition;
    }
    if (!all_in)
      return Fail(ErrorCode::kWrongShard, fmt::format("table '{}': a key of partition {}'s section lies in another",
                                                      table.spec.name, section.partition.value));
  }
  TARN_CHECK(next == keys.size(), "sections do not match the keys");
  return {};
}

// Pointers to the values of the next group of rows; absent ones point to their initial values in absent_.
std::size_t RowStore::ResolveForGather(const Table& table, Cursor& cursor, const float** rows) const {
  const std::size_t n = std::min(kGroup, cursor.left());
  const std::uint32_t dim = table.spec.dim;
  Key keys[kGroup];
  std::uint32_t places[kGroup];
  std::uint64_t hashes[kGroup];
  auto absent = [&](std::size_t i) {
    absent_.resize(kGroup * dim);
    float* initial = absent_.data() + i * dim;
    table.Initialize(keys[i], initial);
    return initial;
  };
  for (std::size_t i = 0; i < n; ++i) {
    keys[i] = cursor.Next(&places[i]);
    if (table.is_dense()) continue;
    if (const SparsePartition* partition = table.sparse[places[i]].get()) {
      hashes[i] = partition->index.Hash(keys[i]);
      partition->index.Prefetch(hashes[i]);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    rows[i] = nullptr;
    if (table.is_dense()) {
      const DensePartition& partition = table.dense[places[i]];
      if (partition.values != nullptr) rows[i] = partition.values + partition.range.IndexOf(keys[i]) * dim;
    } else if (const SparsePartition* partition = table.sparse[places[i]].get()) {
      const std::uint32_t row = partition->index.Find(hashes[i], keys[i]);
      if (row == RowIndex::kNone) continue;
      rows[i] = partition->Row(row);
      if (table.resident != nullptr) table.resident->CountUse(places[i], row);
    }
    if (rows[i] != nullptr) __builtin_prefetch(rows[i]);
  }
  for (std::size_t i = 0; i < n; ++i)
    if (rows[i] == nullptr) rows[i] = absent(i);
  return n;
}

void RowStore::Gather(TableId id, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
                      std::byte* out) const {
  const Table& table = At(id);
  const std::size_t row_bytes = table.spec.dim * kernels::CodecBytes(codec);
  const float* rows[kGroup];
  std::size_t in_memory = table.resident == nullptr ? keys.size() : 0;  // of the next rows
  for (Cursor cursor(place_, sections, keys); cursor.left() > 0;) {
    if (in_memory == 0) in_memory = BringIn(table, cursor);
    const std::size_t n = ResolveForGather(table, cursor, rows);
    in_memory -= n;
    kernels::GatherRowsEncoded(codec, table.spec.dim, n, rows, out);
    out += n * row_bytes;
  }
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
  table.Initialize(key, born.values);
  kernels::InitSlots(table.spec.optimizer, table.spec.dim, born.slots);
  if (born.life != nullptr) *born.life = {};
  return number;
}

void RowStore::SparsePartition::TakeNumber(bool with_life) {
  const std::uint32_t number = NextNumber();
  if (resident != nullptr) resident->Add(place, number);
  if (!free.empty()) return free.pop_back();
  resident != nullptr ? void(++tier_end) : void(slabs.Add());
  if (with_life) lives.Add();
}

// The number of the row of a key of a sparse table, born now if it was not.
std::uint32_t RowStore::RowForApply(Table& table, std::uint32_t place, std::uint64_t hash, Key key) {
  SparsePartition& partition = *table.sparse[place];
  std::uint32_t number = partition.index.Find(hash, key);
  if (number == RowIndex::kNone) {
    number = BirthOf(table, partition, hash, key);
    LeaveOut(table, place, number);
    partition.changed.Restore(key);
  } else {
    KeepFirst(table, place, number, key, table.SparseRow(partition, number));
    if (partition.resident != nullptr) partition.resident->MarkChanged(place, number);
  }
  partition.changed.rows.Set(number);
  return number;
}

RowStore::DensePartition& RowStore::DenseForApply(Table& table, std::uint32_t place) {
  DensePartition& partition = table.dense[place];
  if (partition.values != nullptr) return partition;
  BornDense(table, place);
  partition.changed.SetFirst(partition.range.count);
  return partition;
}

// Pointers to the values and slots of the next group of rows, all born.
std::size_t RowStore::ResolveForApply(Table& table, Cursor& cursor, float** values, float** slots) {
  const std::size_t n = std::min(kGroup, cursor.left());
  const std::uint32_t dim = table.spec.dim;
  Key keys[kGroup];
  std::uint32_t places[kGroup];
  std::uint64_t hashes[kGroup];
  for (std::size_t i = 0; i < n; ++i) {
    keys[i] = cursor.Next(&places[i]);
    if (table.is_dense()) continue;
    SparsePartition& partition = Sparse(table, places[i]);
    hashes[i] = partition.index.Hash(keys[i]);
    partition.index.Prefetch(hashes[i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    RowParts row;
    if (table.is_dense()) {
      DensePartition& partition = DenseForApply(table, places[i]);
      const std::uint64_t number = partition.range.IndexOf(keys[i]);
      row = table.DenseRow(partition, number);
      KeepFirst(table, places[i], number, keys[i], row);
      partition.changed.Set(number);
    } else {
      row = table.SparseRow(*table.sparse[places[i]], RowForApply(table, places[i], hashes[i], keys[i]));
    }
    values[i] = row.values;
    slots[i] = row.slots;
    PrefetchForWrite(slots[i], table.layout.slot_words);
    PrefetchForWrite(values[i], dim);
  }
  return n;
}

void RowStore::Apply(TableId id, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
                     const std::byte* gradients, Clock clock) {
  Table& table = const_cast<Table&>(At(id));
  const std::uint32_t dim = table.spec.dim;
  const bool encoded = codec != ValueCodec::kFp32;
  if (encoded) decoded_.resize(kGroup * dim);
  float* values[kGroup];
  float* slots[kGroup];
  std::size_t in_memory = table.resident == nullptr ? keys.size() : 0;  // of the next rows
  for (Cursor cursor(place_, sections, keys); cursor.left() > 0;) {
    std::size_t n = 0;
    try {
      if (in_memory == 0) in_memory = BringIn(table, cursor);
      n = ResolveForApply(table, cursor, values, slots);
      in_memory -= n;
    } catch (const std::bad_alloc& e) {
      ThrowExhausted(table, e);
    }
    if (encoded) kernels::DecodeValues(codec, n * dim, gradients, decoded_.data());
    kernels::ApplyOptimizer(table.spec.optimizer, clock, dim, n, values, slots,
                            encoded ? decoded_.data() : reinterpret_cast<const float*>(gradients));
    gradients += n * dim * kernels::CodecBytes(codec);
  }
}

void RowStore::ThrowExhausted(const Table& table, const std::bad_alloc& reason) const {
  const std::string more =
      table.is_dense() ? fmt::format("a partition of its {} rows, born whole", table.spec.rows) : "more rows";
  throw OutOfMemory(fmt::format("table '{}', {} of {} bytes each: {}; the shard holds {} rows in {} bytes",
                                table.spec.name, more, table.row_bytes(), reason.what(), row_count(), memory_bytes()));
}

// Calls visit(key, row) for every born row, partition by partition.
template <typename Visit>
void RowStore::ForEachRow(const Table& table, Visit visit) const {
  for (std::uint32_t place = 0; place < options_.owned.size(); ++place) {
    if (table.is_dense()) {
      const DensePartition& partition = table.dense[place];
      for (std::uint64_t i = 0; i < table.RowCount(place); ++i)
        visit(partition.range.KeyAt(i), table.DenseRow(partition, i));
    } else if (const SparsePartition* partition = table.sparse[place].get()) {
      partition->index.ForEach([&](Key key, std::uint32_t number) {
        if (const RowParts row = table.SparseRow(*partition, number); row.values != nullptr) visit(key, row);
      });
      if (table.resident != nullptr) ForEachCold(table, place, visit);
    }
  }
}

void RowStore::AppendRecord(const Table& table, const RowParts& row, std::vector<std::uint32_t>* out) {
  const std::size_t before = out->size();
  out->resize(before + table.row_words());
  std::uint32_t* to = out->data() + before;
  auto append = [&to](const void* from, std::uint32_t words) {
    if (words != 0) std::memcpy(to, from, words * sizeof(std::uint32_t));
    to += words;
  };
  append(row.values, table.layout.value_words);
  append(row.slots, table.layout.slot_words);
  append(row.life, table.layout.life_words);
}

std::uint64_t RowStore::HashOf(const Table& table, Key key, const RowParts& row) const {
  record_.clear();
  AppendRecord(table, row, &record_);
  return RowHash(table.salt, key, record_);
}

std::uint64_t RowStore::StateHash() const {
  std::uint64_t sum = 0;
  for (const auto& table : tables_) {
    if (!table) continue;
    ForEachRow(*table, [&](Key key, const RowParts& row) { sum += HashOf(*table, key, row); });
    for (const auto& partition : table->sparse)
      if (partition && partition->candidates)
        for (const Seen& seen : partition->candidates->All()) sum += SeenHash(table->salt, seen);
  }
  return sum;
}

std::uint64_t RowStore::row_count() const {
  std::uint64_t count = 0;
  for (const auto& table : tables_) {
    if (!table) continue;
    for (std::uint32_t place = 0; place < options_.owned.size(); ++place) count += table->RowCount(place);
  }
  return count;
}

std::uint64_t RowStore::SparsePartition::memory_bytes() const {
  return index.memory_bytes() + free.capacity() * sizeof(free[0]) + changed.memory_bytes() + aside.memory_bytes() +
         (candidates ? candidates->memory_bytes() : 0);
}

std::uint64_t RowStore::memory_bytes() const {
  std::uint64_t bytes = arena_.reserved_bytes() + (tier_ ? tier_->memory_bytes() : 0);
  for (const auto& table : tables_) {
    if (!table) continue;
    for (const auto& partition : table->sparse)
      if (partition) bytes += partition->memory_bytes();
    for (const DensePartition& partition : table->dense)
      bytes += partition.changed.memory_bytes() + partition.aside.memory_bytes();
  }
  return bytes;
}

// Takes away the row of a key, if it has one.
void RowStore::Forget(SparsePartition& partition, Key key) {
  const std::uint32_t number = partition.index.Erase(partition.index.Hash(key), key);
  if (number == RowIndex::kNone) return;
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
