#include "server/store/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/table/table_shape.h"
#include "server/exhaustion.h"
#include "server/tier/resident_rows.h"

namespace tarn::server {
namespace {

[[noreturn]] void ThrowExhausted(const Store& store, const Table& table, const std::bad_alloc& reason) {
  const std::string more =
      table.is_dense() ? fmt::format("a partition of its {} rows, created whole", table.spec().rows) : "more rows";
  throw OutOfMemory(fmt::format("table '{}', {} of {} bytes each: {}; the shard holds {} rows in {} bytes",
                                table.spec().name, more, table.row_bytes(), reason.what(), store.row_count(),
                                store.memory_bytes()));
}

}  // namespace

Store::Store(StoreOptions options, std::unique_ptr<Residency> tier)
    : job_seed_(options.job_seed),
      tier_(std::move(tier)),
      reader_(&context_, [this] { return memory_bytes(); }),
      cut_(tables_, partitions_, &context_),
      expiry_(tables_, partitions_, &context_) {
  TARN_CHECK(options.partition_bits <= limits::kPartitionBitsMax, "too many partition bits");
  context_.partition_bits = options.partition_bits;
  context_.removed_keys_max = std::max<std::size_t>(1, options.removed_keys_max >> options.partition_bits);
  context_.tier = tier_.get();
  partitions_.resize(std::size_t{1} << options.partition_bits);
  std::ranges::sort(options.owned);
  for (const PartitionId partition : options.owned) AddPartition(partition);
  if (tier_) tier_->NameRowsBy([this](TableId id, RowOwner owner) { return NameOf(id, owner); });
}

Store::~Store() = default;

// Partitions.

Partition& Store::AddPartition(PartitionId id) {
  TARN_CHECK(id.value < partitions_.size() && !partitions_[id.value], "no such partition, or it is owned already");
  TARN_CHECK(!cut_.active(), "a partition is added during a cut");
  std::uint32_t place = 0;
  if (free_places_.empty()) {
    place = places_++;
    if (tier_) tier_->AddPlacesTo(places_);
  } else {
    place = free_places_.back();
    free_places_.pop_back();
  }
  auto partition = std::make_unique<Partition>(id, place, &context_);
  for (const auto& table : tables_)
    if (table && table->is_dense()) partition->Obtain(*table);
  return *(partitions_[id.value] = std::move(partition));
}

void Store::DropPartition(PartitionId id) {
  TARN_CHECK(Owns(id) && !cut_.active(), "the partition is not owned, or a cut is in progress");
  partitions_[id.value]->Release();
  free_places_.push_back(partitions_[id.value]->place());
  partitions_[id.value].reset();
  expiry_.OnPartitionDropped();
}

std::vector<PartitionId> Store::owned() const {
  std::vector<PartitionId> owned;
  for (const auto& partition : partitions_)
    if (partition) owned.push_back(partition->id());
  return owned;
}

// Tables.

Status Store::AddTable(const TableSpec& spec) {
  TARN_RETURN_IF_ERROR(Validate(spec));
  TARN_RETURN_IF_ERROR(ValidatePartitions(spec, context_.partition_bits));
  if (spec.id.value > limits::kTablesMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("table '{}': id {} is above {}", spec.name, spec.id.value, limits::kTablesMax));
  for (const TableSpec* known : {FindTable(spec.id), FindTable(spec.name)})
    if (known != nullptr) return UpdateTable(At(known->id), spec);
  if (tables_.size() <= spec.id.value) tables_.resize(spec.id.value + 1);
  auto& table = tables_[spec.id.value] = std::make_unique<Table>(spec, job_seed_, context_.partition_bits);
  if (table->is_dense()) {
    for (const auto& partition : partitions_)
      if (partition) partition->Obtain(*table);
  } else if (tier_) {
    table->set_resident(tier_->AddTable(spec.id, table->layout().value_words + table->layout().slot_words));
  }
  expiry_.OnTableAdded(table.get());
  return {};
}

// First removes the rows that expired by the old rules.
Status Store::UpdateTable(Table& table, const TableSpec& spec) {
  const TableSpec& known = table.spec();
  if (known.id != spec.id || known.name != spec.name || !ShapeDifference(known, "", spec, "").empty())
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("table '{}' (id {}): differs from the table '{}' (id {}) that exists", spec.name,
                            spec.id.value, known.name, known.id.value));
  const bool other_life = known.life != spec.life;
  if (other_life)
    ForEachSparse(partitions_, table, [](SparseFragment& fragment) {
      fragment.RemoveExpired();
      fragment.ForgetCutVerdicts();
    });
  table.Update(spec);
  if (other_life) ForEachSparse(partitions_, table, [](SparseFragment& fragment) { fragment.RecountLife(); });
  return context_.failure;
}

const TableSpec* Store::FindTable(TableId id) const {
  return id.value < tables_.size() && tables_[id.value] ? &tables_[id.value]->spec() : nullptr;
}

const TableSpec* Store::FindTable(std::string_view name) const {
  for (const auto& table : tables_)
    if (table && table->spec().name == name) return &table->spec();
  return nullptr;
}

Table& Store::At(TableId id) const {
  TARN_CHECK(FindTable(id) != nullptr, "unknown table");
  return *tables_[id.value];
}

// Messages.

Status Store::CheckKeys(TableId id, std::span<const Section> sections, std::span<const Key> keys) const {
  const Table& table = At(id);
  std::size_t next = 0;
  for (const Section& section : sections) {
    TARN_CHECK(section.count <= keys.size() - next, "sections do not match the keys");
    const Partition* partition = Find(section.partition);
    if (partition == nullptr)
      return Fail(ErrorCode::kWrongShard,
                  fmt::format("partition {} does not belong to this shard", section.partition.value));
    TARN_RETURN_IF_ERROR(partition->CheckKeys(table, keys.subspan(next, section.count)));
    next += section.count;
  }
  TARN_CHECK(next == keys.size(), "sections do not match the keys");
  return {};
}

Status Store::Gather(TableId id, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
                     std::byte* out) const {
  const Table& table = At(id);
  const std::size_t row_bytes = CodecRowBytes(codec, table.dim());
  const RowFinder finder(table, context_);
  for (KeyCursor cursor(partitions_, table, sections, keys, Missing::kLeaveOut); cursor.left() > 0;) {
    const auto in_memory = reader_.LoadRows(table, cursor);
    if (!in_memory) return std::unexpected(in_memory.error());
    finder.ForEachGroup(Ahead::kValues, *in_memory, &cursor, [&](const RowGroup& group) {
      stepper_.Gather(table, group, codec, out);
      out += group.n * row_bytes;
    });
  }
  return {};
}

Expected<std::vector<float>> Store::Values(TableId id, Key key) const {
  const Table& table = At(id);
  const Section section{table.PartitionOf(key), 1, {}};
  TARN_CHECK(Owns(section.partition), "the row belongs to another shard");
  std::vector<float> values(table.dim());
  TARN_RETURN_IF_ERROR(
      Gather(id, {&section, 1}, {&key, 1}, ValueCodec::kFp32, reinterpret_cast<std::byte*>(values.data())));
  return values;
}

Status Store::Apply(TableId id, std::span<const Section> sections, std::span<const Key> keys,
                    const PushedRows& pushed) {
  Table& table = At(id);
  PushedRows rows = pushed;
  stepper_.BeginPush(table, rows);
  try {
    if (rows.action == PushAction::kDelete) return Delete(table, sections, keys);
    if (!table.optimizer().rule().by_section) return ApplySections(table, sections, keys, &rows);
    for (const Section& section : sections) {
      TARN_RETURN_IF_ERROR(ApplySections(table, {&section, 1}, keys.first(section.count), &rows));
      keys = keys.subspan(section.count);
    }
  } catch (const std::bad_alloc& e) {
    ThrowExhausted(*this, table, e);
  }
  return {};
}

Status Store::ApplySections(Table& table, std::span<const Section> sections, std::span<const Key> keys,
                            PushedRows* rows) {
  CountSections(table, sections, rows->worker);
  const RowFinder finder(table, context_);
  for (KeyCursor cursor(partitions_, table, sections, keys, Missing::kCreate); cursor.left() > 0;) {
    const auto in_memory = reader_.LoadRows(table, cursor);
    if (!in_memory) return std::unexpected(in_memory.error());
    finder.ForEachGroup(Ahead::kRows, *in_memory, &cursor, [&](const RowGroup& group) {
      stepper_.Apply(&table, group, *rows, &context_);
      rows->Skip(group.n, table.dim());
    });
    if (!context_.failure) return context_.failure;
  }
  return {};
}

Status Store::Delete(const Table& table, std::span<const Section> sections, std::span<const Key> keys) {
  CountSections(table, sections, kNoWorker);
  for (const Section& section : sections) {
    if (section.count != 0)
      partitions_[section.partition.value]->FindSparse(table.id())->Delete(keys.first(section.count));
    keys = keys.subspan(section.count);
  }
  return context_.failure;
}

// Raises the versions. The stepper has the delay and the state of the last section; rules that use them are applied
// section by section.
void Store::CountSections(const Table& table, std::span<const Section> sections, WorkerRank worker) {
  for (const Section& section : sections) {
    if (section.count == 0) continue;
    Fragment& fragment = partitions_[section.partition.value]->Obtain(table);
    const std::optional<std::uint64_t> delay = fragment.CountSection(section.version);
    stepper_.BeginSections(delay.value_or(0), fragment.rule_state());
    if (stepper_.Discards(table)) context_.counters.discarded += section.count;
    if (delay) context_.delays.Count(*delay, worker);
  }
}

void Store::SkipNotFinite(TableId id, Key key) {
  ++context_.counters.not_finite;
  At(id).CountNotFinite(key);
}

std::vector<NotFiniteRows> Store::not_finite() const {
  std::vector<NotFiniteRows> found;
  for (const auto& table : tables_)
    if (table && table->not_finite() != 0)
      found.push_back({table->spec().name, table->not_finite(), table->not_finite_key()});
  return found;
}

void Store::ForgetCounters() {
  context_.counters = {};
  context_.delays = {};
  for (const auto& table : tables_)
    if (table) table->ForgetNotFinite();
}

// Loading.

// Calls take(partition, first, count) for each run of keys of one owned partition. Stops at the first error.
template <typename Take>
Status Store::ForEachRun(const Table& table, std::span<const Key> keys, Take take) const {
  for (std::size_t first = 0, end = 0; first < keys.size(); first = end) {
    const PartitionId id = table.PartitionOf(keys[first]);
    for (end = first + 1; end < keys.size() && table.PartitionOf(keys[end]) == id;) ++end;
    if (Partition* partition = Find(id)) TARN_RETURN_IF_ERROR(take(*partition, first, end - first));
  }
  return {};
}

Status Store::Load(TableId id, std::span<const Key> keys, std::span<const std::uint32_t> rows) {
  const Table& table = At(id);
  TARN_CHECK(rows.size() == keys.size() * table.row_words(), "rows do not match the keys");
  TARN_CHECK(!cut_.active(), "a load during a cut");
  context_.has_base = true;
  if (table.is_dense())
    for (const Key key : keys)
      if (key >= table.spec().rows)
        return Fail(ErrorCode::kCorrupt, fmt::format("table '{}': key {} of a dense table, expected keys below {}",
                                                     table.spec().name, key, table.spec().rows));
  try {
    TARN_RETURN_IF_ERROR(ForEachRun(table, keys, [&](Partition& partition, std::size_t first, std::size_t count) {
      const auto records = rows.subspan(first * table.row_words(), count * table.row_words());
      return partition.Load(table, keys.subspan(first, count), records);
    }));
  } catch (const std::bad_alloc& e) {
    ThrowExhausted(*this, table, e);
  }
  return tier_ ? reader_.Rebalance() : Status();
}

Status Store::Remove(TableId id, std::span<const Key> keys) {
  const Table& table = At(id);
  TARN_CHECK(!cut_.active(), "a load during a cut");
  if (table.is_dense() && !keys.empty())
    return Fail(ErrorCode::kCorrupt,
                fmt::format("table '{}': key {} is removed, but the table is dense", table.spec().name, keys.front()));
  return ForEachRun(table, keys, [&](Partition& partition, std::size_t first, std::size_t count) {
    partition.Remove(table, keys.subspan(first, count));
    return Status();
  });
}

Status Store::LoadSeen(TableId id, std::span<const Seen> seen) {
  const Table& table = At(id);
  TARN_CHECK(!cut_.active(), "a load during a cut");
  if (table.is_dense() && !seen.empty())
    return Fail(ErrorCode::kCorrupt, fmt::format("table '{}': key {} waits for admission, but the table is dense",
                                                 table.spec().name, seen.front().first));
  std::vector<Key> keys;
  for (const auto& [key, count] : seen) keys.push_back(key);
  return ForEachRun(table, keys, [&](Partition& partition, std::size_t first, std::size_t count) {
    partition.LoadSeen(table, seen.subspan(first, count));
    return Status();
  });
}

Status Store::LoadState(TableId id, PartitionId partition, const FragmentState& state) {
  const Table& table = At(id);
  TARN_CHECK(!cut_.active(), "a load during a cut");
  const std::uint32_t floats = table.optimizer().rule().partition_floats;
  if (state.words.size() != floats)
    return Fail(ErrorCode::kCorrupt, fmt::format("table '{}': a state of {} floats in partition {}, expected {}",
                                                 table.spec().name, state.words.size(), partition.value, floats));
  if (Partition* owned = Find(partition)) owned->Obtain(table).SetState(state);
  return {};
}

// The tier.

FetchTicket Store::FetchCold(TableId id, std::span<const Section> sections, std::span<const Key> keys) {
  const Table& table = At(id);
  return reader_.Fetch(table, KeyCursor(partitions_, table, sections, keys, Missing::kLeaveOut));
}

bool Store::HasCold(TableId id) const {
  const ResidentRows* resident = At(id).resident();
  return resident != nullptr && resident->cold() != 0;
}

Status Store::Maintain(std::size_t other_bytes) { return tier_ ? reader_.Maintain(other_bytes) : Status(); }

// For an error message: searches the fragment for the key.
std::string Store::NameOf(TableId id, RowOwner owner) const {
  const std::string& table = At(id).spec().name;
  const auto at = std::ranges::find_if(
      partitions_, [&](const auto& partition) { return partition && partition->place() == owner.place; });
  if (at == partitions_.end())
    return fmt::format("table '{}': row {} of no partition of this shard", table, owner.number);
  const std::uint32_t partition = (*at)->id().value;
  const SparseFragment* fragment = (*at)->FindSparse(id);
  if (const auto key = fragment != nullptr ? fragment->KeyOf(owner.number) : std::nullopt)
    return fmt::format("table '{}': key {} in partition {}", table, *key, partition);
  return fmt::format("table '{}': row {} of partition {}, which no key has", table, owner.number, partition);
}

// Sums.

Expected<std::uint64_t> Store::StateHash() const {
  std::uint64_t sum = 0;
  for (const auto& partition : partitions_) {
    if (!partition) continue;
    const auto hash = partition->StateHash();
    if (!hash) return hash;
    sum += *hash;
  }
  return sum;
}

std::uint64_t Store::row_count() const {
  std::uint64_t rows = 0;
  for (const auto& partition : partitions_)
    if (partition) rows += partition->row_count();
  return rows;
}

std::uint64_t Store::memory_bytes() const {
  std::uint64_t bytes = context_.arena.reserved_bytes() + context_.pages.reserved_bytes() +
                        context_.cut.early_held_bytes + (tier_ ? tier_->memory_bytes() : 0);
  for (const auto& partition : partitions_)
    if (partition) bytes += partition->memory_bytes();
  return bytes;
}

}  // namespace tarn::server
