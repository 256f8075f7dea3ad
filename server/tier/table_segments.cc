#include "server/tier/table_segments.h"

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
// Blocks of ids in a segment, and minimum number of ids in a block.
constexpr std::uint32_t kSegmentBlocksLog2 = 5, kBlockRecordsMinLog2 = 4;
// If half of a table's ids are used, holes are collected when they are more than one in so many records.
constexpr std::uint64_t kTightShare = 8;

std::size_t RecordBytes(const TableSegments::Options& options) {
  return (options.words + kOwnerWords) * sizeof(std::uint32_t);
}

std::uint32_t CapacityLog2(const TableSegments::Options& options) {
  const std::size_t records = std::max<std::size_t>(1, options.segment_bytes / RecordBytes(options));
  return std::max(kSegmentRecordsMinLog2, static_cast<std::uint32_t>(std::bit_width(records)) - 1);
}

IdBlocks BlocksOf(std::uint32_t capacity_log2, ColdId ids_max) {
  const std::uint32_t block_log2 =
      std::max(kBlockRecordsMinLog2, capacity_log2 - std::min(capacity_log2, kSegmentBlocksLog2));
  return {block_log2, std::size_t{1} << (capacity_log2 - block_log2), ids_max};
}

}  // namespace

TableSegments::TableSegments(const Options& options, ColdStore* store, SegmentTotals* totals)
    : options_(options),
      store_(store),
      totals_(totals),
      per_page_(static_cast<std::uint32_t>(std::max<std::size_t>(1, kPageBytes / RecordBytes(options)))),
      capacity_log2_(CapacityLog2(options)),
      ids_(BlocksOf(capacity_log2_, options.ids_max)) {}

Status TableSegments::Open() {
  const auto index = free_.empty() ? static_cast<std::uint32_t>(segments_.size()) : free_.back();
  totals_->list_bytes -= ids_.memory_bytes();
  const IdBlocks::Run blocks = ids_.Take(index);
  totals_->list_bytes += ids_.memory_bytes();
  if (blocks.count == 0)
    return Fail(
        ErrorCode::kTooLarge,
        fmt::format("table {}: all {} ids for its rows on this shard's disk are used, by {} segments with {} rows and "
                    "{} holes: use more servers or shards",
                    options_.table.value, options_.ids_max, segments_.size() - free_.size(), live_, records_ - live_));
  if (free_.empty()) {
    segments_.emplace_back();
    totals_->list_bytes += sizeof(Segment) + (std::size_t{1} << capacity_log2_) / 8;
  } else {
    free_.pop_back();
  }
  open_ = index;
  Segment& segment = segments_[index];
  segment = {.state = Segment::State::kOpen,
             .first = static_cast<std::uint32_t>(blocks.first),
             .blocks = static_cast<std::uint32_t>(blocks.count),
             .alive = std::move(segment.alive),
             .bytes = nullptr};
  const std::size_t capacity = ids_.FirstId(blocks.first + blocks.count) - ids_.FirstId(blocks.first);
  segment.alive.assign((capacity + 63) / 64, 0);
  segment.bytes = std::make_shared<SegmentBytes>();
  segment.bytes->page_bytes = static_cast<std::uint32_t>(per_page_ * record_bytes());
  ++totals_->segments;
  return {};
}

// The memory of a segment grows up to the size of a full one.
std::byte* TableSegments::AddRecord(SegmentBytes* segment) {
  std::vector<std::byte>& bytes = segment->bytes;
  const std::size_t offset = bytes.size(), held = bytes.capacity();
  if (offset + record_bytes() > held)
    bytes.reserve(std::min(record_bytes() << capacity_log2_, std::max({2 * held, record_bytes(), kPageBytes})));
  bytes.resize(offset + record_bytes());
  totals_->open_bytes += bytes.capacity() - held;
  return bytes.data() + offset;
}

Expected<ColdId> TableSegments::Append(RowOwner owner, const std::uint32_t* words) {
  if (open_ == kNone) TARN_RETURN_IF_ERROR(Open());
  Segment& segment = segments_[open_];
  const ColdId first = ids_.FirstId(segment.first);
  const std::uint32_t index = segment.count++;
  std::byte* record = AddRecord(segment.bytes.get());
  std::memcpy(record, &owner, sizeof(owner));
  std::memcpy(record + sizeof(owner), words, options_.words * sizeof(std::uint32_t));
  segment.alive[index / 64] |= std::uint64_t{1} << (index % 64);
  ++segment.live;
  ++records_;
  ++live_;
  ++totals_->rows;
  if (first + segment.count == ids_.FirstId(segment.first + segment.blocks)) Seal();
  return first + index;
}

void TableSegments::Seal() {
  Segment& segment = segments_[std::exchange(open_, kNone)];
  const std::uint32_t needed = ids_.BlocksFor(segment.count);
  ids_.Give(segment.first + needed, segment.first + segment.blocks);
  segment.blocks = needed;
  totals_->open_bytes -= segment.bytes->bytes.capacity();
  totals_->queued_bytes += segment.bytes->bytes.capacity();
  segment.state = Segment::State::kWriting;
  store_->Write({options_.table.value, segment.first}, segment.bytes);
}

std::size_t TableSegments::open_bytes() const { return open_ == kNone ? 0 : segments_[open_].bytes->bytes.capacity(); }

bool TableSegments::IsLive(ColdId id) const {
  const Segment& segment = Of(id);
  return IsLiveAt(segment, IndexOf(segment, id));
}

void TableSegments::Free(ColdId id) {
  Segment& segment = Of(id);
  const std::uint32_t index = IndexOf(segment, id);
  TARN_CHECK(IsLiveAt(segment, index), "a cold row is freed twice");
  segment.alive[index / 64] &= ~(std::uint64_t{1} << (index % 64));
  --segment.live;
  --live_;
  --totals_->rows;
  if (segment.state == Segment::State::kWritten && options_.collected) totals_->live_written_bytes -= record_bytes();
  RemoveIfUnused(&segment);
}

void TableSegments::FreeAll() {
  for (Segment& segment : segments_) {
    if (segment.live == 0) continue;
    if (segment.state == Segment::State::kWritten && options_.collected)
      totals_->live_written_bytes -= segment.live * record_bytes();
    totals_->rows -= segment.live;
    live_ -= std::exchange(segment.live, 0);
    std::ranges::fill(segment.alive, 0);
    RemoveIfUnused(&segment);
  }
}

// Removes a segment without rows that is not being read.
void TableSegments::RemoveIfUnused(Segment* segment) {
  if (segment->state != Segment::State::kWritten || segment->live != 0 || segment->readers != 0) return;
  segment->state = Segment::State::kRemoving;
  if (options_.collected) totals_->written_bytes -= segment->count * record_bytes();
  store_->Remove({options_.table.value, segment->first});
}

bool TableSegments::CopyFromMemory(ColdId id, std::uint32_t* record) const {
  const Segment& segment = Of(id);
  if (!segment.bytes) return false;
  std::memcpy(record, segment.bytes->bytes.data() + IndexOf(segment, id) * record_bytes(), record_bytes());
  return true;
}

RecordAt TableSegments::At(ColdId id) const {
  const Segment& segment = Of(id);
  const std::uint32_t index = IndexOf(segment, id);
  return {.segment = {options_.table.value, segment.first},
          .page = index / per_page_,
          .offset = static_cast<std::uint32_t>(index % per_page_ * record_bytes())};
}

void TableSegments::EndRead(ColdId id) {
  Segment& segment = Of(id);
  --segment.readers;
  RemoveIfUnused(&segment);
}

void TableSegments::OnWritten(std::uint32_t number) {
  Segment& segment = segments_[ids_.OwnerOfBlock(number)];
  totals_->queued_bytes -= segment.bytes->bytes.capacity();
  segment.bytes.reset();
  segment.state = Segment::State::kWritten;
  if (options_.collected) {
    totals_->written_bytes += segment.count * record_bytes();
    totals_->live_written_bytes += segment.live * record_bytes();
  }
  RemoveIfUnused(&segment);
}

void TableSegments::OnRemoved(std::uint32_t number) {
  const std::uint32_t index = ids_.OwnerOfBlock(number);
  Segment& segment = segments_[index];
  segment.state = Segment::State::kFree;
  records_ -= segment.count;
  ids_.Give(segment.first, segment.first + segment.blocks);
  free_.push_back(index);
  --totals_->segments;
}

bool TableSegments::IsTight() const {
  return ids_.used_ids() > options_.ids_max / 2 && records_ - live_ > records_ / kTightShare;
}

// Share of live records in the records written. A segment that was sealed early has fewer records, but no holes because
// of that. 1: the segment is not collected.
double TableSegments::Fullness(const Segment& segment) {
  if (segment.state != Segment::State::kWritten || segment.live == 0) return 1;
  return static_cast<double>(segment.live) / static_cast<double>(segment.count);
}

double TableSegments::EmptiestFullness() const {
  double least = 1;
  for (const Segment& segment : segments_) least = std::min(least, Fullness(segment));
  return least;
}

std::vector<ColdId> TableSegments::EmptiestRows(std::size_t rows) const {
  std::vector<const Segment*> emptiest;
  for (const Segment& segment : segments_)
    if (Fullness(segment) < 1) emptiest.push_back(&segment);
  std::ranges::sort(emptiest, {}, [](const Segment* segment) { return Fullness(*segment); });
  std::vector<ColdId> ids;
  for (const Segment* segment : emptiest)
    for (std::uint32_t index = 0; index < segment->count && ids.size() < rows; ++index)
      if (IsLiveAt(*segment, index)) ids.push_back(ids_.FirstId(segment->first) + index);
  std::ranges::sort(ids);
  return ids;
}

}  // namespace tarn::server
