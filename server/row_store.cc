#include "server/row_store_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/limits.h"
#include "core/table_shape.h"

namespace tarn::server {

RowStore::RowStore(RowStoreOptions options, std::unique_ptr<Residency> tier)
    : options_(std::move(options)), tier_(std::move(tier)) {
  TARN_CHECK(options_.partition_bits <= limits::kPartitionBitsMax, "too many partition bits");
  std::ranges::sort(options_.owned);
  place_.assign(std::size_t{1} << options_.partition_bits, kNotOwned);
  for (std::uint32_t i = 0; i < options_.owned.size(); ++i) {
    TARN_CHECK(options_.owned[i].value < place_.size(), "no such partition");
    place_[options_.owned[i].value] = i;
  }
  if (tier_) tier_->NameRowsBy([this](TableId id, RowOwner owner) { return NameOf(id, owner); });
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
      Table& table = *tables_[spec.id.value];
      const bool other_life = table.spec.life != spec.life;
      table.spec = spec;
      if (other_life) SetLife(table);
      return {};
    }
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("table '{}' (id {}): differs from the table '{}' (id {}) that exists", spec.name,
                            spec.id.value, known->name, known->id.value));
  }
  auto table = std::make_unique<Table>();
  table->spec = spec;
  table->salt = TableSalt(options_.job_seed, spec.name);
  table->position = Positioner(spec, table->salt);
  table->layout = LayoutOf(spec);
  if (spec.life.on) SetLife(*table);
  if (table->is_dense()) {
    for (PartitionId partition : options_.owned)
      table->dense.push_back({DenseRangeOf(spec.rows, table->salt, options_.partition_bits, partition)});
  } else {
    table->sparse.resize(options_.owned.size());
    if (tier_) table->resident = tier_->AddTable(spec.id, table->layout.value_words + table->layout.slot_words);
  }
  if (table->rules) BeginTime(*table);
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

// Calls visit(key, row) for every row, partition by partition.
template <typename Visit>
void RowStore::ForEachRow(const Table& table, Visit visit) const {
  for (std::uint32_t place = 0; place < options_.owned.size(); ++place) {
    if (table.is_dense()) {
      const DensePartition& partition = table.dense[place];
      for (std::uint64_t i = 0; i < table.RowCount(place); ++i)
        visit(partition.range.KeyAt(i), table.DenseRow(partition, i));
    } else if (const SparsePartition* partition = table.sparse[place].get()) {
      partition->index.ForEach([&](Key key, std::uint32_t number) {
        const RowParts row = table.SparseRow(*partition, number);
        if (row.values != nullptr && !Expired(table, *partition, number)) visit(key, row);
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
         removed.memory_bytes() + standings.memory_bytes() + (candidates ? candidates->memory_bytes() : 0);
}

std::uint64_t RowStore::memory_bytes() const {
  std::uint64_t bytes = arena_.reserved_bytes() + pages_.reserved_bytes() + (tier_ ? tier_->memory_bytes() : 0);
  for (const auto& table : tables_) {
    if (!table) continue;
    for (const auto& partition : table->sparse)
      if (partition) bytes += partition->memory_bytes();
    for (const DensePartition& partition : table->dense)
      bytes += partition.changed.memory_bytes() + partition.aside.memory_bytes();
  }
  return bytes + CutBytes();
}

}  // namespace tarn::server
