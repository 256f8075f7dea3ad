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
// Minimum number of records per segment, so that lists remain short.
constexpr std::uint32_t kSegmentRecordsMinLog2 = 4;
// Rows that collecting takes on at one go, in bytes: as a rule, and where there are too many holes.
constexpr std::size_t kCollectBytes = std::size_t{512} << 10, kCollectBytesMax = std::size_t{2} << 20;
// Holes of up to this many segments are not collected.
constexpr std::size_t kHoleSegments = 4;
// Blocks of ids in a segment, and rows in a block at least.
constexpr std::uint32_t kSegmentBlocksLog2 = 5, kBlockRecordsMinLog2 = 4;
// Free blocks are looked for where they are more than one of so many.
constexpr std::size_t kFreeShare = 8;
// Of a table that has used half of its ids, so many holes are collected: one of so many rows.
constexpr std::uint64_t kTightShare = 8;
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
  family.block_log2 =
      std::max(kBlockRecordsMinLog2, family.capacity_log2 - std::min(family.capacity_log2, kSegmentBlocksLog2));
}

// A run of free blocks that a segment takes: a whole one's where there is one, else the longest. Blocks are added while
// few are free: to look for them takes time.
ColdLog::Blocks ColdLog::FindBlocks(const Family& family) const {
  const std::size_t end = family.owners.size(), wanted = family.SegmentBlocks();
  const std::size_t max = options_.ids_max >> family.block_log2;
  if (end + wanted <= max && family.free_blocks * kFreeShare <= end) return {end, wanted};
  Blocks longest = NextFree(family, family.next_block, end);
  if (longest.count < wanted)
    if (const Blocks before = NextFree(family, 0, end); before.count > longest.count) longest = before;
  if (longest.count < wanted && max - end > longest.count) return {end, std::min(wanted, max - end)};
  return longest;
}

// The first run of free blocks that is enough for a segment, else the longest.
ColdLog::Blocks ColdLog::NextFree(const Family& family, std::size_t from, std::size_t to) {
  Blocks longest, run;
  for (std::size_t block = from; block < to && longest.count < family.SegmentBlocks(); ++block) {
    if (family.owners[block] != kNone) {
      run = {};
      continue;
    }
    if (run.count++ == 0) run.first = block;
    if (run.count > longest.count) longest = run;
  }
  return longest;
}

void ColdLog::TakeBlocks(Family& family, Blocks blocks, std::uint32_t owner) {
  const std::size_t end = blocks.first + blocks.count, before = family.owners.size();
  if (end > before) {
    list_bytes_ -= family.owners.capacity() * sizeof(family.owners[0]);
    family.owners.resize(end, kNone);
    list_bytes_ += family.owners.capacity() * sizeof(family.owners[0]);
    family.free_blocks += end - before;
  }
  std::fill_n(family.owners.begin() + static_cast<std::ptrdiff_t>(blocks.first), blocks.count, owner);
  family.free_blocks -= blocks.count;
  family.next_block = end;
}

void ColdLog::GiveBlocks(Family& family, std::size_t first, std::size_t end) {
  std::fill(family.owners.begin() + static_cast<std::ptrdiff_t>(first),
            family.owners.begin() + static_cast<std::ptrdiff_t>(end), kNone);
  family.free_blocks += end - first;
}

// The index of the segment that takes the next row.
Expected<std::uint32_t> ColdLog::OpenSegment(Family& family, TableId table) {
  if (family.open != kNone) return family.open;
  const Blocks blocks = FindBlocks(family);
  if (blocks.count == 0)
    return Fail(
        ErrorCode::kTooLarge,
        fmt::format("table {}: its rows on disk have all {} ids of a shard: {} segments of {} rows and {} holes",
                    table.value, options_.ids_max, family.segments.size() - family.free.size(), family.live,
                    family.records - family.live));
  if (family.free.empty()) {
    family.free.push_back(static_cast<std::uint32_t>(family.segments.size()));
    family.segments.emplace_back();
    list_bytes_ += sizeof(Segment) + (std::size_t{1} << family.capacity_log2) / 8;
  }
  family.open = family.free.back();
  family.free.pop_back();
  TakeBlocks(family, blocks, family.open);
  Segment& segment = family.segments[family.open];
  segment = {.state = Segment::State::kOpen,
             .first = static_cast<std::uint32_t>(blocks.first),
             .blocks = static_cast<std::uint32_t>(blocks.count),
             .alive = std::move(segment.alive),
             .bytes = nullptr};
  segment.alive.assign((family.Capacity(segment) + 63) / 64, 0);
  segment.bytes = std::make_shared<SegmentBytes>();
  segment.bytes->page_bytes = static_cast<std::uint32_t>(family.per_page * family.record_bytes());
  ++segments_;
  return family.open;
}

// The memory of a segment grows up to the size of a full one.
std::size_t ColdLog::NextCapacity(const Family& family, std::size_t held) {
  const std::size_t full = family.record_bytes() << family.capacity_log2;
  return std::min(full, std::max({2 * held, family.record_bytes(), kPageBytes}));
}

Expected<ColdId> ColdLog::Append(TableId table, RowOwner owner, const std::uint32_t* words) {
  Family& family = families_[table.value];
  const auto index = OpenSegment(family, table);
  if (!index) return std::unexpected(index.error());
  Segment& segment = family.segments[*index];
  const ColdId first = family.FirstId(segment);
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
  ++family.records;
  ++family.live;
  ++rows_;
  if (segment.count == family.Capacity(segment))
    Seal(family, table);
  else if (open_bytes_ > 2 * options_.segment_bytes)
    SealLargest();
  return first + place;
}

// Hands the open segment to the store.
void ColdLog::Seal(Family& family, TableId table) {
  Segment& segment = family.segments[std::exchange(family.open, kNone)];
  const std::uint32_t needed = (segment.count + (1u << family.block_log2) - 1) >> family.block_log2;
  GiveBlocks(family, segment.first + needed, segment.first + segment.blocks);
  segment.blocks = needed;
  open_bytes_ -= segment.bytes->bytes.capacity();
  queued_bytes_ += segment.bytes->bytes.capacity();
  segment.state = Segment::State::kWriting;
  store_->Write({table.value, segment.first}, segment.bytes);
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
  const std::uint32_t place = id - family.FirstId(segment);
  const std::uint64_t bit = std::uint64_t{1} << (place % 64);
  TARN_CHECK((segment.alive[place / 64] & bit) != 0, "a cold row is freed twice");
  segment.alive[place / 64] &= ~bit;
  --segment.live;
  --family.live;
  --rows_;
  if (segment.state == Segment::State::kWritten && family.collected) live_written_bytes_ -= family.record_bytes();
  Settle(table, family.IndexOf(id));
}

void ColdLog::FreeAll(TableId table) {
  Family& family = families_[table.value];
  for (std::uint32_t index = 0; index < family.segments.size(); ++index) {
    Segment& segment = family.segments[index];
    if (segment.live == 0) continue;
    if (segment.state == Segment::State::kWritten && family.collected)
      live_written_bytes_ -= segment.live * family.record_bytes();
    rows_ -= segment.live;
    family.live -= std::exchange(segment.live, 0);
    std::ranges::fill(segment.alive, 0);
    Settle(table, index);
  }
}

// Removes a segment without rows that is not being read.
void ColdLog::Settle(TableId table, std::uint32_t index) {
  Segment& segment = families_[table.value].segments[index];
  if (segment.state != Segment::State::kWritten || segment.live != 0 || segment.readers != 0) return;
  segment.state = Segment::State::kRemoving;
  if (families_[table.value].collected) written_bytes_ -= segment.count * families_[table.value].record_bytes();
  store_->Remove({table.value, segment.first});
}

void ColdLog::CopyFromMemory(const Family& family, const Segment& segment, ColdId id, std::uint32_t* record) const {
  const std::size_t place = id - family.FirstId(segment);
  std::memcpy(record, segment.bytes->bytes.data() + place * family.record_bytes(), family.record_bytes());
}

RecordAt ColdLog::At(const Family& family, const Segment& segment, TableId table, ColdId id) const {
  const std::uint32_t place = id - family.FirstId(segment);
  return {.segment = {table.value, segment.first},
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
      CopyFromMemory(family, segment, ids[i], records + i * words);
    } else {
      at_.push_back(At(family, segment, table, ids[i]));
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

void ColdLog::Fetch(TableId table, std::vector<ColdId> ids, FetchReceiver* receiver) {
  PendingFetch fetch;
  fetch.table = table;
  fetch.ids = std::move(ids);
  fetch.receiver = receiver;
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
      CopyFromMemory(family, segment, fetch.ids[i], fetch.records.data() + i * words);
      continue;
    }
    at.push_back(At(family, segment, fetch.table, fetch.ids[i]));
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
    const std::uint32_t index = family.owners[event.segment.number];
    Segment& segment = family.segments[index];
    if (event.kind == ColdEvent::Kind::kWritten) {
      queued_bytes_ -= segment.bytes->bytes.capacity();
      segment.bytes.reset();
      segment.state = Segment::State::kWritten;
      if (family.collected) {
        written_bytes_ += segment.count * family.record_bytes();
        live_written_bytes_ += segment.live * family.record_bytes();
      }
      Settle(TableId(event.segment.table), index);
    } else {
      segment.state = Segment::State::kFree;
      family.records -= segment.count;
      GiveBlocks(family, segment.first, segment.first + segment.blocks);
      family.free.push_back(index);
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
  Status taken =
      fetch.receiver == nullptr ? MoveRows(fetch) : fetch.receiver->OnFetched(fetch.table, fetch.ids, fetch.records);
  if (!taken) return failed_ = std::move(taken);
  // Only now: while a fetch touches a segment, none of its ids can become another row's.
  for (ColdId id : fetch.ids) {
    --family.Of(id).readers;
    Settle(fetch.table, family.IndexOf(id));
  }
  return {};
}

// Appends the live rows of a segment that is being collected again.
Status ColdLog::MoveRows(const PendingFetch& fetch) {
  collecting_ = false;
  const std::size_t words = record_words(fetch.table);
  for (std::size_t i = 0; i < fetch.ids.size(); ++i) {
    Family& family = families_[fetch.table.value];
    const ColdId from = fetch.ids[i];
    const Segment& segment = family.Of(from);
    const std::uint32_t place = from - family.FirstId(segment);
    if ((segment.alive[place / 64] >> (place % 64) & 1) == 0) continue;
    const std::uint32_t* record = fetch.records.data() + i * words;
    const RowOwner owner{record[0], record[1]};
    const auto to = Append(fetch.table, owner, record + kOwnerWords);
    if (!to) return {};  // no ids left: the holes remain
    TARN_RETURN_IF_ERROR(listener_->OnMoved(fetch.table, owner, from, *to));
    Free(fetch.table, from);
    ++moved_;
  }
  return {};
}

// Collects a slice of the emptiest segments at a time, while the disk has more holes than rows, or a table has few ids
// left. Pauses while the store falls behind, because collected rows would wait in memory and evicted rows have
// priority.
void ColdLog::Collect() {
  if (collecting_ || !HasRoom()) return;
  const std::uint64_t holes = written_bytes_ - live_written_bytes_;
  const std::optional<TableId> tight = FindTight();
  std::optional<TableId> table = tight;
  if (!table && holes > kHoleSegments * options_.segment_bytes && holes > live_written_bytes_) table = FindEmptiest();
  if (!table) return;
  PendingFetch fetch;
  fetch.table = *table;
  const Family& family = families_[table->value];
  const std::size_t bytes = tight || holes > kTooManyHoles * live_written_bytes_
                                ? std::clamp(options_.segment_bytes, kCollectBytes, kCollectBytesMax)
                                : kCollectBytes;
  const std::size_t rows = std::max<std::size_t>(1, bytes / family.record_bytes());
  for (const std::uint32_t index : EmptiestOf(family, rows)) {
    const Segment& segment = family.segments[index];
    for (std::uint32_t place = 0; place < segment.count && fetch.ids.size() < rows; ++place)
      if ((segment.alive[place / 64] >> (place % 64) & 1) != 0) fetch.ids.push_back(family.FirstId(segment) + place);
  }
  if (fetch.ids.empty()) return;  // all holes are in segments that are not written yet
  collecting_ = true;
  std::ranges::sort(fetch.ids);
  Begin(std::move(fetch));
}

// Share of live records in the records written: a segment that was sealed early has no holes because of that. 1:
// nothing to collect.
double ColdLog::Fullness(const Segment& segment) {
  if (segment.state != Segment::State::kWritten || segment.live == 0) return 1;
  return static_cast<double>(segment.live) / static_cast<double>(segment.count);
}

// A table that has used half of its ids, some of them for holes.
std::optional<TableId> ColdLog::FindTight() const {
  for (std::size_t t = 0; t < families_.size(); ++t) {
    const Family& family = families_[t];
    if (family.collected && family.UsedIds() > options_.ids_max / 2 &&
        family.records - family.live > family.records / kTightShare)
      return TableId(static_cast<std::uint32_t>(t));
  }
  return {};
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
