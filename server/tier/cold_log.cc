#include "server/tier/cold_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tarn::server {

namespace {

// Pages of about this size, so that RocksDB's key, header and checksum still fit into a block of 4 KiB.
constexpr std::size_t kPageBytes = 4032;
// Records of a segment at least, that lists stay short.
constexpr std::uint32_t kSegmentRecordsMinLog2 = 4;
// Rows that collecting takes on at one go, in bytes: as a rule, and where there are too many holes.
constexpr std::size_t kCollectBytes = std::size_t{512} << 10, kCollectBytesMax = std::size_t{2} << 20;
// Holes that are not worth collecting, in segments.
constexpr std::size_t kHoleSegments = 4;
// So many holes for a row, in bytes, are too many.
constexpr std::uint64_t kTooManyHoles = 2;

}  // namespace

ColdLog::ColdLog(ColdStore* store, ColdLogListener* listener, ColdLogOptions options)
    : store_(store), listener_(listener), options_(options) {}
ColdLog::~ColdLog() = default;

void ColdLog::AddTable(TableId table, std::size_t words, bool collected) {
  if (families_.size() <= table.value) families_.resize(table.value + 1);
  Family& family = families_[table.value];
  family.words = words;
  family.collected = collected;
  family.per_page = static_cast<std::uint32_t>(std::max<std::size_t>(1, kPageBytes / family.record_bytes()));
  const std::size_t records = std::max<std::size_t>(1, options_.segment_bytes / family.record_bytes());
  family.capacity_log2 = std::max(kSegmentRecordsMinLog2, static_cast<std::uint32_t>(std::bit_width(records)) - 1);
}

Expected<std::uint32_t> ColdLog::OpenSegment(Family& family) {
  if (family.open != kNone) return family.open;
  if (family.free.empty()) {
    if (family.segments.size() >= kColdIds >> family.capacity_log2)
      return Fail(ErrorCode::kTooLarge, fmt::format("a table has {} cold rows in one shard already", kColdIds));
    family.free.push_back(static_cast<std::uint32_t>(family.segments.size()));
    family.segments.emplace_back();
    list_bytes_ += sizeof(Segment) + (std::size_t{1} << family.capacity_log2) / 8;
  }
  family.open = family.free.back();
  family.free.pop_back();
  Segment& segment = family.segments[family.open];
  segment = {.state = Segment::State::kOpen, .alive = std::move(segment.alive), .bytes = nullptr};
  segment.alive.assign(((std::size_t{1} << family.capacity_log2) + 63) / 64, 0);
  segment.bytes = std::make_shared<SegmentBytes>();
  segment.bytes->page_bytes = static_cast<std::uint32_t>(family.per_page * family.record_bytes());
  ++segments_;
  return family.open;
}

// A segment's memory grows to what a full one takes, and no further.
std::size_t ColdLog::NextCapacity(const Family& family, std::size_t held) {
  const std::size_t full = family.record_bytes() << family.capacity_log2;
  return std::min(full, std::max({2 * held, family.record_bytes(), kPageBytes}));
}

Expected<ColdId> ColdLog::Append(TableId table, RowOwner owner, const std::uint32_t* words) {
  Family& family = families_[table.value];
  const auto number = OpenSegment(family);
  if (!number) return std::unexpected(number.error());
  Segment& segment = family.segments[*number];
  const std::uint32_t place = segment.count++;
  std::vector<std::byte>& bytes = segment.bytes->bytes;
  const std::size_t offset = bytes.size(), held = bytes.capacity();
  if (offset + family.record_bytes() > held) bytes.reserve(NextCapacity(family, held));
  bytes.resize(offset + family.record_bytes());
  open_bytes_ += bytes.capacity() - held;
  std::memcpy(bytes.data() + offset, &owner, sizeof(owner));
  std::memcpy(bytes.data() + offset + sizeof(owner), words, family.words * sizeof(std::uint32_t));
  segment.alive[place / 64] |= std::uint64_t{1} << (place % 64);
  ++segment.live;
  ++rows_;
  if (segment.count == 1u << family.capacity_log2)
    Seal(family, table);
  else if (open_bytes_ > 2 * options_.segment_bytes)
    SealLargest();
  return (*number << family.capacity_log2) | place;
}

// Hands the open segment to the store.
void ColdLog::Seal(Family& family, TableId table) {
  const std::uint32_t number = std::exchange(family.open, kNone);
  Segment& segment = family.segments[number];
  open_bytes_ -= segment.bytes->bytes.capacity();
  queued_bytes_ += segment.bytes->bytes.capacity();
  segment.state = Segment::State::kWriting;
  store_->Write({table.value, number}, segment.bytes);
}

// Many tables with a few cold rows each must not fill the memory with open segments.
void ColdLog::SealLargest() {
  std::size_t largest = 0, bytes = 0;
  for (std::size_t t = 0; t < families_.size(); ++t) {
    const Family& family = families_[t];
    if (family.open == kNone || family.segments[family.open].bytes->bytes.capacity() <= bytes) continue;
    largest = t;
    bytes = family.segments[family.open].bytes->bytes.capacity();
  }
  Seal(families_[largest], TableId(static_cast<std::uint32_t>(largest)));
}

void ColdLog::Free(TableId table, ColdId id) {
  Family& family = families_[table.value];
  Segment& segment = family.Of(id);
  const std::uint32_t place = family.Place(id);
  const std::uint64_t bit = std::uint64_t{1} << (place % 64);
  TARN_CHECK((segment.alive[place / 64] & bit) != 0, "a cold row is freed twice");
  segment.alive[place / 64] &= ~bit;
  --segment.live;
  --rows_;
  if (segment.state == Segment::State::kWritten && family.collected) live_written_bytes_ -= family.record_bytes();
  Settle(table, id >> family.capacity_log2);
}

void ColdLog::FreeAll(TableId table) {
  Family& family = families_[table.value];
  for (std::uint32_t number = 0; number < family.segments.size(); ++number) {
    Segment& segment = family.segments[number];
    if (segment.live == 0) continue;
    if (segment.state == Segment::State::kWritten && family.collected)
      live_written_bytes_ -= segment.live * family.record_bytes();
    rows_ -= std::exchange(segment.live, 0);
    std::ranges::fill(segment.alive, 0);
    Settle(table, number);
  }
}

// Removes a segment that has no rows left and that nobody reads.
void ColdLog::Settle(TableId table, std::uint32_t number) {
  Segment& segment = families_[table.value].segments[number];
  if (segment.state != Segment::State::kWritten || segment.live != 0 || segment.readers != 0) return;
  segment.state = Segment::State::kRemoving;
  if (families_[table.value].collected) written_bytes_ -= segment.count * families_[table.value].record_bytes();
  store_->Remove({table.value, number});
}

void ColdLog::CopyFromMemory(const Family& family, const Segment& segment, std::uint32_t place,
                             std::uint32_t* record) const {
  std::memcpy(record, segment.bytes->bytes.data() + place * family.record_bytes(), family.record_bytes());
}

RecordAt ColdLog::At(const Family& family, TableId table, ColdId id) const {
  const std::uint32_t place = family.Place(id);
  return {.segment = {table.value, id >> family.capacity_log2},
          .page = place / family.per_page,
          .offset = static_cast<std::uint32_t>(place % family.per_page * family.record_bytes())};
}

Status ColdLog::Read(TableId table, std::span<const ColdId> ids, std::uint32_t* records) {
  Family& family = families_[table.value];
  const std::size_t words = record_words(table);
  at_.clear();
  from_store_.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Segment& segment = family.Of(ids[i]);
    if (segment.bytes) {
      CopyFromMemory(family, segment, family.Place(ids[i]), records + i * words);
    } else {
      at_.push_back(At(family, table, ids[i]));
      from_store_.push_back(static_cast<std::uint32_t>(i));
    }
  }
  if (at_.empty()) return {};
  read_.resize(at_.size() * family.record_bytes());
  TARN_RETURN_IF_ERROR(store_->Read(at_, family.record_bytes(), read_.data()));
  for (std::size_t i = 0; i < from_store_.size(); ++i)
    std::memcpy(records + from_store_[i] * words, read_.data() + i * family.record_bytes(), family.record_bytes());
  return {};
}

void ColdLog::Fetch(TableId table, std::vector<ColdId> ids) {
  PendingFetch fetch;
  fetch.table = table;
  fetch.ids = std::move(ids);
  Begin(std::move(fetch));
}

void ColdLog::Begin(PendingFetch fetch) {
  Family& family = families_[fetch.table.value];
  const std::size_t words = record_words(fetch.table);
  fetch.records.resize(fetch.ids.size() * words);
  std::vector<RecordAt> at;
  for (std::size_t i = 0; i < fetch.ids.size(); ++i) {
    Segment& segment = family.Of(fetch.ids[i]);
    ++segment.readers;
    if (segment.bytes) {
      CopyFromMemory(family, segment, family.Place(fetch.ids[i]), fetch.records.data() + i * words);
      continue;
    }
    at.push_back(At(family, fetch.table, fetch.ids[i]));
    fetch.from_store.push_back(static_cast<std::uint32_t>(i));
  }
  // The store's copy of the records, and ours.
  fetch_bytes_ += (fetch.ids.size() + at.size()) * family.record_bytes();
  fetch.waiting = !at.empty();
  fetches_.push_back(std::move(fetch));
  if (!at.empty()) store_->Fetch(std::move(at), family.record_bytes());
}

Status ColdLog::TakeStoreEvents() {
  if (!failed_) return failed_;
  for (ColdEvent& event : store_->TakeEvents()) {
    if (event.kind == ColdEvent::Kind::kFailed) {
      failed_ = std::unexpected(std::move(event.error));
      return failed_;
    }
    if (event.kind == ColdEvent::Kind::kFetched) {
      fetched_.push_back(std::move(event.records));
      continue;
    }
    Family& family = families_[event.segment.table];
    Segment& segment = family.segments[event.segment.number];
    if (event.kind == ColdEvent::Kind::kWritten) {
      queued_bytes_ -= segment.bytes->bytes.capacity();
      segment.bytes.reset();
      segment.state = Segment::State::kWritten;
      if (family.collected) {
        written_bytes_ += segment.count * family.record_bytes();
        live_written_bytes_ += segment.live * family.record_bytes();
      }
      Settle(TableId(event.segment.table), event.segment.number);
    } else {
      segment.state = Segment::State::kFree;
      family.free.push_back(event.segment.number);
      --segments_;
    }
  }
  return {};
}

Status ColdLog::WaitForRoom() {
  while (!HasRoom()) {
    store_->WaitForWrite();
    TARN_RETURN_IF_ERROR(TakeStoreEvents());
  }
  return {};
}

Status ColdLog::Poll() {
  TARN_RETURN_IF_ERROR(TakeStoreEvents());
  while (!fetches_.empty() && (!fetches_.front().waiting || !fetched_.empty())) {
    PendingFetch fetch = std::move(fetches_.front());
    fetches_.pop_front();
    TARN_RETURN_IF_ERROR(Deliver(std::move(fetch)));
  }
  Collect();
  return {};
}

Status ColdLog::Deliver(PendingFetch fetch) {
  Family& family = families_[fetch.table.value];
  const std::size_t words = record_words(fetch.table), bytes = family.record_bytes();
  if (fetch.waiting) {
    const std::vector<std::byte> read = std::move(fetched_.front());
    fetched_.pop_front();
    TARN_CHECK(read.size() == fetch.from_store.size() * bytes, "a fetch brings other records");
    for (std::size_t i = 0; i < fetch.from_store.size(); ++i)
      std::memcpy(fetch.records.data() + fetch.from_store[i] * words, read.data() + i * bytes, bytes);
  }
  fetch_bytes_ -= (fetch.ids.size() + fetch.from_store.size()) * bytes;
  if (!fetch.collecting)
    listener_->OnFetched(fetch.table, fetch.ids, fetch.records);
  else if (Status moved = MoveRows(fetch); !moved)
    return failed_ = std::move(moved);
  // Only now: while a fetch touches a segment, none of its ids can become another row's.
  for (ColdId id : fetch.ids) {
    --family.Of(id).readers;
    Settle(fetch.table, id >> family.capacity_log2);
  }
  return {};
}

// Appends anew what is still alive of a segment that is collected.
Status ColdLog::MoveRows(const PendingFetch& fetch) {
  collecting_ = false;
  const std::size_t words = record_words(fetch.table);
  for (std::size_t i = 0; i < fetch.ids.size(); ++i) {
    const Family& family = families_[fetch.table.value];
    const ColdId from = fetch.ids[i];
    const std::uint32_t place = family.Place(from);
    if ((families_[fetch.table.value].Of(from).alive[place / 64] >> (place % 64) & 1) == 0) continue;
    const std::uint32_t* record = fetch.records.data() + i * words;
    const RowOwner owner{record[0], record[1]};
    const auto to = Append(fetch.table, owner, record + kOwnerWords);
    if (!to) return {};  // no ids left: the holes stay
    TARN_RETURN_IF_ERROR(listener_->OnMoved(fetch.table, owner, from, *to));
    Free(fetch.table, from);
    ++moved_;
  }
  return {};
}

// One slice of the emptiest segments at a time, as long as more of the disk is holes than rows. While the store does
// not keep up, rows that leave memory go first: what is collected waits in memory too.
void ColdLog::Collect() {
  const std::uint64_t holes = written_bytes_ - live_written_bytes_;
  if (collecting_ || !HasRoom() || holes <= kHoleSegments * options_.segment_bytes || holes <= live_written_bytes_)
    return;
  const std::optional<TableId> table = FindEmptiest();
  if (!table) return;
  PendingFetch fetch;
  fetch.table = *table;
  fetch.collecting = collecting_ = true;
  const Family& family = families_[table->value];
  const std::size_t bytes = holes > kTooManyHoles * live_written_bytes_
                                ? std::clamp(options_.segment_bytes, kCollectBytes, kCollectBytesMax)
                                : kCollectBytes;
  const std::size_t rows = std::max<std::size_t>(1, bytes / family.record_bytes());
  for (const std::uint32_t number : EmptiestOf(family, rows)) {
    const Segment& segment = family.segments[number];
    for (std::uint32_t place = 0; place < segment.count && fetch.ids.size() < rows; ++place)
      if ((segment.alive[place / 64] >> (place % 64) & 1) != 0)
        fetch.ids.push_back((number << family.capacity_log2) | place);
  }
  std::ranges::sort(fetch.ids);
  Begin(std::move(fetch));
}

// Of what it holds: one that was sealed early has no holes for that. 1: nothing to collect.
double ColdLog::Fullness(const Segment& segment) {
  if (segment.state != Segment::State::kWritten || segment.live == 0) return 1;
  return static_cast<double>(segment.live) / static_cast<double>(segment.count);
}

// The table of the emptiest segment.
std::optional<TableId> ColdLog::FindEmptiest() const {
  double least = 1;
  std::optional<TableId> table;
  for (std::size_t t = 0; t < families_.size(); ++t) {
    if (!families_[t].collected) continue;
    for (const Segment& segment : families_[t].segments)
      if (const double full = Fullness(segment); full < least) {
        least = full;
        table = TableId(static_cast<std::uint32_t>(t));
      }
  }
  return table;
}

// The emptiest segments, at least one, with up to about so many rows together.
std::vector<std::uint32_t> ColdLog::EmptiestOf(const Family& family, std::size_t rows) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t s = 0; s < family.segments.size(); ++s)
    if (Fullness(family.segments[s]) < 1) numbers.push_back(s);
  std::ranges::sort(numbers, {}, [&](std::uint32_t s) { return Fullness(family.segments[s]); });
  std::size_t live = 0, n = 0;
  while (n < numbers.size() && live < rows) live += family.segments[numbers[n++]].live;
  numbers.resize(n);
  return numbers;
}

std::size_t ColdLog::memory_bytes() const {
  return open_bytes_ + queued_bytes_ + fetch_bytes_ + list_bytes_ + store_->memory_bytes();
}

}  // namespace tarn::server
