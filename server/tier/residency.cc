#include "server/tier/residency.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace tarn::server {

namespace {

// The budget is divided into about this many chunks, which move between tables.
constexpr std::size_t kChunks = 256;
constexpr std::size_t kChunkBytesMin = 512, kChunkBytesMax = std::size_t{2} << 20;
// Number of segments that hold as many bytes as the budget. Not more, because a segment is a file: RocksDB keeps some
// KiB of memory for each, and scans all when one is added or removed. About five segments are in memory until they are
// written: with fewer, larger segments these would take more of the budget.
constexpr std::size_t kSegments = 64;
constexpr std::size_t kSegmentBytesMin = 512, kSegmentBytesMax = std::size_t{16} << 20;
// Bytes of rows evicted at once, so many that neighbouring rows in a segment are useful to read together. EvictBatch
// evicts fewer if the clock hand would have to pass more than an eighth of the table's rows.
constexpr std::size_t kEvictBytes = std::size_t{1} << 20;
// Shares of the budget: rows that a message reads at once, and rows being fetched.
constexpr std::size_t kSpanShare = 32, kFetchShare = 16;
constexpr std::size_t kSpanRowsMin = 64, kSpanRowsMax = 4096;
// A table that needs memory is compared with kCompared others. It takes a chunk from another table if a byte there has
// less than kLessWorth of the value of a byte of its own.
constexpr std::size_t kCompared = 8;
constexpr double kLessWorth = 0.67;

std::size_t PartOf(std::size_t bytes, std::size_t parts, std::size_t low, std::size_t high) {
  return std::clamp(std::bit_floor(bytes / parts), low, high);
}

}  // namespace

Residency::Residency(ResidencyOptions options, std::unique_ptr<ColdStore> store)
    : options_(options),
      chunk_bytes_(PartOf(options.limit_bytes, kChunks, kChunkBytesMin, kChunkBytesMax)),
      store_(std::move(store)),
      log_(store_.get(), this,
           {.segment_bytes = PartOf(options.limit_bytes, kSegments, kSegmentBytesMin, kSegmentBytesMax)}),
      cut_(&log_, options.limit_bytes) {}
Residency::~Residency() = default;

void Residency::SetLimit(std::size_t bytes) {
  options_.limit_bytes = bytes;
  cut_.SetLimit(bytes);
}

void Residency::AddPlacesTo(std::uint32_t places) {
  options_.places = std::max(options_.places, places);
  for (const Table& table : tables_) table.rows->AddPlacesTo(places);
}

ResidentRows* Residency::AddTable(TableId table, std::size_t words) {
  log_.AddTable(table, words);
  tables_.push_back(
      {table, std::make_unique<ResidentRows>(table, words, options_.places, chunk_bytes_, options_.rows_max, &log_)});
  return tables_.back().rows.get();
}

std::size_t Residency::memory_bytes() const {
  std::size_t bytes = log_.memory_bytes();
  for (const Table& table : tables_) bytes += table.rows->memory_bytes();
  return bytes;
}

std::uint64_t Residency::cold_rows() const {
  std::uint64_t rows = 0;
  for (const Table& table : tables_) rows += table.rows->cold();
  return rows;
}

std::uint64_t Residency::resident_rows() const {
  std::uint64_t rows = 0;
  for (const Table& table : tables_) rows += table.rows->resident();
  return rows;
}

bool Residency::Fits(std::size_t bytes) const { return memory_bytes() + other_bytes_ + bytes <= options_.limit_bytes; }

bool Residency::HasRoom() const { return log_.HasRoom() && log_.fetch_bytes() <= options_.limit_bytes / kFetchShare; }

std::size_t Residency::SpanRows(const ResidentRows& rows) const {
  const std::size_t fair = options_.limit_bytes / kSpanShare / rows.row_bytes();
  return std::clamp(fair / kSpanRowsMin * kSpanRowsMin, kSpanRowsMin, kSpanRowsMax);
}

std::size_t Residency::EvictBatch(const ResidentRows& rows) const {
  const std::size_t some = std::max<std::size_t>(1, rows.resident() / (8 * kVictimWindow));
  return std::clamp<std::size_t>(kEvictBytes / rows.row_bytes(), 1, some);
}

// The table with the least valuable bytes of those compared, if they are clearly less valuable than those of `self`;
// else `self`. A `self` that is null or has no rows in memory counts as the most valuable.
ResidentRows* Residency::LeastWorth(ResidentRows* self) {
  ResidentRows* least = self;
  double worth = self == nullptr || self->resident() == 0 ? 1e300 : self->WorthOfByte() * kLessWorth;
  for (std::size_t i = 0; i < std::min(kCompared, tables_.size()); ++i) {
    next_table_ = (next_table_ + 1) % tables_.size();
    ResidentRows* other = tables_[next_table_].rows.get();
    if (other == self || other->chunks() < 2) continue;
    const double others = other->WorthOfByte();
    if (others >= worth) continue;
    least = other;
    worth = others;
  }
  return least;
}

Status Residency::Evict(ResidentRows* rows, std::size_t wanted) {
  const std::size_t before = rows->resident();
  Status status = rows->Evict(wanted);
  counters_.evicted += before - rows->resident();
  return status;
}

Status Residency::Release(ResidentRows* rows) {
  const std::size_t before = rows->resident();
  Status status = rows->ReleaseChunk();
  counters_.evicted += before - rows->resident();
  return status;
}

bool Residency::Grow(ResidentRows* rows, std::size_t slots) {
  while (rows->free_slots() < slots)
    if (!Fits(rows->chunk_bytes()) || !rows->AddChunk()) return false;
  return true;
}

Status Residency::Reserve(ResidentRows* rows, std::size_t slots) {
  while (!Grow(rows, slots)) {
    // Memory of other tables does not help a table that has no numbers for more slots.
    if (ResidentRows* least = rows->MayAddChunk() ? LeastWorth(rows) : rows; least != rows) {
      TARN_RETURN_IF_ERROR(Release(least));
    } else if (rows->resident() != 0) {
      TARN_RETURN_IF_ERROR(Evict(rows, std::max(slots - rows->free_slots(), EvictBatch(*rows))));
    } else {
      // The budget is smaller than the rows of one message, so it is exceeded.
      TARN_CHECK(rows->AddChunk(), "a message has more rows than there are slots");
    }
  }
  return {};
}

Status Residency::Read(ResidentRows* rows, std::vector<RowOwner>* owners, std::vector<std::uint32_t>* records) {
  std::ranges::sort(*owners, {}, [rows](const RowOwner& owner) { return rows->cold_id(owner.place, owner.number); });
  ids_.clear();
  for (const RowOwner& owner : *owners) ids_.push_back(rows->cold_id(owner.place, owner.number));
  const std::size_t stride = log_.record_words(rows->table());
  records->resize(ids_.size() * stride);
  TARN_RETURN_IF_ERROR(log_.Read(rows->table(), ids_, records->data()));
  for (std::size_t i = 0; i < owners->size(); ++i) {
    const std::uint32_t* record = records->data() + i * stride;
    if (RowOwner{record[0], record[1]} != (*owners)[i]) return std::unexpected(AnotherRow(rows->table(), (*owners)[i]));
  }
  return {};
}

Status Residency::LoadRows(ResidentRows* rows, std::vector<RowOwner>* owners) {
  if (owners->empty()) return {};
  TARN_RETURN_IF_ERROR(Read(rows, owners, &records_));
  counters_.read_waiting += owners->size();
  const std::size_t stride = log_.record_words(rows->table());
  for (std::size_t i = 0; i < owners->size(); ++i) {
    const auto [place, number] = (*owners)[i];
    if (rows->IsCold(place, number)) rows->Install(place, number, records_.data() + i * stride + kOwnerWords);
  }
  return {};
}

FetchTicket Residency::Fetch(ResidentRows* rows, std::span<const RowOwner> owners) {
  FetchTicket ticket = 0;
  std::vector<ColdId> ids;
  for (const RowOwner& owner : owners) {
    if (!rows->IsCold(owner.place, owner.number)) continue;
    const ColdId id = rows->cold_id(owner.place, owner.number);
    if (const auto found = in_flight_.find(InFlightKey(rows->table(), id)); found != in_flight_.end())
      ticket = std::max(ticket, found->second);
    else
      ids.push_back(id);
  }
  std::ranges::sort(ids);
  counters_.fetched += ids.size();
  for (std::span<const ColdId> left = ids; !left.empty();) {
    const auto piece = left.first(std::min(left.size(), SpanRows(*rows)));
    left = left.subspan(piece.size());
    ticket = ++begun_;
    for (ColdId id : piece) in_flight_[InFlightKey(rows->table(), id)] = ticket;
    log_.Fetch(rows->table(), {piece.begin(), piece.end()}, this);
  }
  return ticket;
}

Status Residency::OnFetched(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) {
  ++ended_;
  const auto found = std::ranges::find(tables_, table, &Table::id);
  ResidentRows* rows = found->rows.get();
  TARN_RETURN_IF_ERROR(Reserve(rows, ids.size()));
  const std::size_t stride = log_.record_words(table);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    in_flight_.erase(InFlightKey(table, ids[i]));
    const std::uint32_t* record = records.data() + i * stride;
    // Skip rows that were read, changed or moved since.
    if (!rows->IsColdAt(record[0], record[1], ids[i])) continue;
    rows->Install(record[0], record[1], record + kOwnerWords);
    rows->Spare(record[0], record[1]);
  }
  return {};
}

Status Residency::OnMoved(TableId table, RowOwner owner, ColdId from, ColdId to) {
  if (std::ranges::find(tables_, table, &Table::id)->rows->OnMoved(owner, from, to)) return {};
  return Fail(ErrorCode::kCorrupt,
              fmt::format("{}: a record names {} as its row, which is not stored there: the tier's files are damaged",
                          store_->where(), namer_(table, owner)));
}

std::string Residency::NumbersOf(TableId table, RowOwner owner) {
  return fmt::format("table {}: row {} of place {}", table.value, owner.number, owner.place);
}

Error Residency::AnotherRow(TableId table, RowOwner asked) const {
  return {ErrorCode::kCorrupt, fmt::format("{}: read another row instead of that of {}: the tier's files are damaged",
                                           store_->where(), namer_(table, asked))};
}

Error Residency::WrongPartitionError(TableId table, Key key, PartitionId asked) const {
  return {ErrorCode::kCorrupt,
          fmt::format("{}: table {}: read key {} instead of a key of partition {}: the tier's files are damaged",
                      store_->where(), table.value, key, asked.value)};
}

void Residency::CountUses(ResidentRows* rows, std::uint64_t uses) {
  counters_.uses += uses;
  const bool counting = !Fits(options_.limit_bytes / 2);
  rows->SetCounting(counting);
  if (counting) rows->Age(uses);
}

Status Residency::Balance() {
  if (Fits(0)) return {};
  ResidentRows* least = LeastWorth(nullptr);
  return least != nullptr ? Release(least) : Status();
}

}  // namespace tarn::server
