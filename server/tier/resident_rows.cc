#include "server/tier/resident_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>

#include "server/tier/chunk_memory.h"

namespace tarn::server {

namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPaddingBytesMax = 8;
constexpr std::size_t kPageBytes = 4096;
// Number of slots whose owners are looked up ahead.
constexpr std::size_t kAhead = 16;
// Sample size for the value of a byte.
constexpr std::size_t kSample = 4 * kVictimWindow;
// Maximum number of slots examined for the sample, because most slots may be free.
constexpr std::size_t kSampleSlotsMax = 64 * kSample;

constexpr std::size_t RoundUp(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Rounds up to whole cache lines if that adds little.
std::size_t RowBytes(std::size_t words) {
  const std::size_t bytes = words * sizeof(std::uint32_t), whole = RoundUp(bytes, kLineBytes);
  return whole - bytes <= kPaddingBytesMax ? whole : bytes;
}

// The number of uses that a count represents.
double UsesOf(std::uint32_t count) {
  return count <= kExactUses ? count : kExactUses + std::exp2(count - kExactUses + 1) - 2;
}

}  // namespace

ResidentRows::ResidentRows(TableId table, std::size_t words, std::uint32_t places, std::size_t chunk_bytes,
                           ColdLog* log)
    : table_(table), words_per_row_(words), row_bytes_(RowBytes(words)), log_(log), words_(places) {
  const std::size_t each = row_bytes_ + sizeof(SlotInfo);
  // A power of two, so that slot numbers have no gaps; rounded up, so that large chunks keep huge pages.
  rows_per_chunk_ = static_cast<std::uint32_t>(std::bit_ceil(std::max<std::size_t>(1, chunk_bytes / each)));
  slot_shift_ = static_cast<std::uint32_t>(std::countr_zero(rows_per_chunk_));
  info_offset_ = RoundUp(rows_per_chunk_ * row_bytes_, alignof(SlotInfo));
  chunk_bytes_ = RoundUp(info_offset_ + rows_per_chunk_ * sizeof(SlotInfo), kPageBytes);
}

ResidentRows::~ResidentRows() {
  for (const Chunk& chunk : chunks_) UnmapChunk(chunk.memory, chunk_bytes_);
}

bool ResidentRows::AddChunk() {
  if ((chunks_.size() + 1) << slot_shift_ > kResidentRowsMax) return false;
  chunks_.reserve(chunks_.size() + 1);
  Chunk chunk{.memory = MapChunk(chunk_bytes_), .first_free = 0, .free = rows_per_chunk_};
  chunks_.push_back(chunk);
  const auto first = static_cast<std::uint32_t>(chunks_.size() - 1) << slot_shift_;
  for (std::uint32_t i = 0; i < rows_per_chunk_; ++i)
    InfoOf(first + i) = {kNone, i + 1 == rows_per_chunk_ ? kNone : i + 1, 0, false};
  free_slots_ += rows_per_chunk_;
  return true;
}

// Uses low chunks first, so that the last ones become empty.
std::uint32_t ResidentRows::TakeSlot(std::uint32_t place, std::uint32_t number) {
  TARN_CHECK(free_slots_ != 0, "no slot was reserved for a row");
  while (chunks_[first_chunk_].free == 0) ++first_chunk_;
  Chunk& chunk = chunks_[first_chunk_];
  const std::uint32_t slot = (first_chunk_ << slot_shift_) | chunk.first_free;
  SlotInfo& info = InfoOf(slot);
  chunk.first_free = info.number;
  --chunk.free;
  --free_slots_;
  info = {place, number, 0, false};
  return slot;
}

void ResidentRows::FreeSlot(std::uint32_t slot) {
  const std::uint32_t index = slot >> slot_shift_;
  Chunk& chunk = chunks_[index];
  InfoOf(slot) = {kNone, chunk.first_free, 0, false};
  chunk.first_free = slot & ((1u << slot_shift_) - 1);
  ++chunk.free;
  ++free_slots_;
  first_chunk_ = std::min(first_chunk_, index);
}

float* ResidentRows::Add(std::uint32_t place, std::uint32_t number) {
  Words& words = words_[place];
  if (number / kPageWords == words.pages.size()) {
    words.pages.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(kPageWords));
    std::fill_n(words.pages.back().get(), kPageWords, kNever);
    word_bytes_ += kPageWords * sizeof(std::uint32_t);
  }
  words.end = std::max(words.end, number + 1);
  const std::uint32_t slot = TakeSlot(place, number);
  WordOf(place, number) = slot | 1u << kCountShift;
  ++rows_;
  return SlotRow(slot);
}

void ResidentRows::Remove(std::uint32_t place, std::uint32_t number) {
  std::uint32_t& word = WordOf(place, number);
  if ((word & kCold) != 0) {
    log_->Free(table_, word & kColdMask);
  } else {
    MarkChanged(place, number);
    FreeSlot(word & kSlotMask);
  }
  word = kNever;
  --rows_;
}

float* ResidentRows::Install(std::uint32_t place, std::uint32_t number, const std::uint32_t* words) {
  std::uint32_t& word = WordOf(place, number);
  const std::uint32_t slot = TakeSlot(place, number);
  InfoOf(slot).copy = word & kColdMask;
  word = (word & kCountMask) | kHasCopy | slot;
  float* row = SlotRow(slot);
  std::memcpy(row, words, words_per_row_ * sizeof(std::uint32_t));
  return row;
}

float* ResidentRows::Overwrite(std::uint32_t place, std::uint32_t number) {
  std::uint32_t& word = WordOf(place, number);
  if ((word & kCold) == 0) {
    MarkChanged(place, number);
    return SlotRow(word & kSlotMask);
  }
  log_->Free(table_, word & kColdMask);
  const std::uint32_t slot = TakeSlot(place, number);
  word = (word & kCountMask) | slot;
  return SlotRow(slot);
}

void ResidentRows::DropCopy(std::uint32_t place, std::uint32_t number) {
  std::uint32_t& word = WordOf(place, number);
  log_->Free(table_, InfoOf(word & kSlotMask).copy);
  word &= ~kHasCopy;
}

bool ResidentRows::OnMoved(RowOwner owner, ColdId from, ColdId to) {
  if (owner.place >= words_.size() || owner.number >= words_[owner.place].end) return false;
  std::uint32_t& word = WordOf(owner.place, owner.number);
  if ((word & kCold) != 0) {
    if ((word & kColdMask) != from) return false;
    word = (word & ~kColdMask) | to;
    return true;
  }
  if ((word & kHasCopy) == 0 || InfoOf(word & kSlotMask).copy != from) return false;
  InfoOf(word & kSlotMask).copy = to & kColdMask;
  return true;
}

std::uint32_t ResidentRows::SlotAfter(std::uint32_t slot) const {
  const std::uint32_t chunk = slot >> slot_shift_, index = slot & ((1u << slot_shift_) - 1);
  if (index + 1 < rows_per_chunk_) return slot + 1;
  return chunk + 1 == chunks_.size() ? 0 : (chunk + 1) << slot_shift_;
}

// Adds the slot at the clock hand to the candidates if its row may be evicted.
void ResidentRows::LookAtNext() {
  SlotInfo& info = InfoOf(hand_);
  if (info.place != kNone && !info.spared) candidates_.push_back(hand_);
  info.spared = false;
  hand_ = SlotAfter(hand_);
}

// Finds the least used rows at the clock hand.
void ResidentRows::FindVictims(std::size_t wanted) {
  const std::size_t looked_at = std::min(resident(), wanted * kVictimWindow);
  candidates_.clear();
  if (hand_ >> slot_shift_ >= chunks_.size()) hand_ = 0;
  for (std::size_t left = chunks_.size() * rows_per_chunk_; left != 0 && candidates_.size() < looked_at; --left)
    LookAtNext();
  counts_.clear();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (i + kAhead < candidates_.size()) {
      const SlotInfo& ahead = InfoOf(candidates_[i + kAhead]);
      PrefetchWord(ahead.place, ahead.number);
    }
    const SlotInfo& info = InfoOf(candidates_[i]);
    counts_.push_back(static_cast<std::uint8_t>(CountOf(info.place, info.number)));
  }
  KeepLeastUsed(&candidates_, counts_, wanted);
}

// Evicts in order of partition, because a cut reads the cold rows of one partition after the other and then finds
// several in a page.
Status ResidentRows::Evict(std::size_t wanted) {
  for (wanted = std::min(wanted, resident()); wanted != 0; wanted -= candidates_.size()) {
    FindVictims(wanted);
    std::ranges::sort(candidates_, {}, [this](std::uint32_t slot) {
      const SlotInfo& info = InfoOf(slot);
      return std::tuple(info.place, info.number);
    });
    for (std::uint32_t slot : candidates_) TARN_RETURN_IF_ERROR(EvictSlot(slot));
  }
  return {};
}

Status ResidentRows::EvictSlot(std::uint32_t slot) {
  const SlotInfo info = InfoOf(slot);
  std::uint32_t& word = WordOf(info.place, info.number);
  ColdId id = info.copy;
  if ((word & kHasCopy) == 0) {
    if (!log_->HasRoom()) TARN_RETURN_IF_ERROR(log_->WaitForRoom());
    const auto* row = reinterpret_cast<const std::uint32_t*>(SlotRow(slot));
    const auto appended = log_->Append(table_, {info.place, info.number}, row);
    if (!appended) return std::unexpected(appended.error());
    id = *appended;
  }
  word = kCold | (word & kCountMask) | id;
  FreeSlot(slot);
  return {};
}

Status ResidentRows::ReleaseChunk() {
  TARN_CHECK(chunks_.size() > 1, "a table keeps a chunk");
  const auto last = static_cast<std::uint32_t>(chunks_.size() - 1);
  const std::size_t homeless = rows_per_chunk_ - chunks_[last].free;
  const std::size_t elsewhere = free_slots_ - chunks_[last].free;
  // Some evicted rows may be in the chunk itself; then a few more than necessary are evicted.
  if (homeless > elsewhere) TARN_RETURN_IF_ERROR(Evict(homeless - elsewhere));
  MoveOutOf(last);
  free_slots_ -= rows_per_chunk_;
  UnmapChunk(chunks_[last].memory, chunk_bytes_);
  chunks_.pop_back();
  first_chunk_ = std::min(first_chunk_, last - 1);
  return {};
}

// Low slots are used first, so rows of the last chunk move to earlier ones.
void ResidentRows::MoveOutOf(std::uint32_t chunk) {
  const std::uint32_t first = chunk << slot_shift_;
  for (std::uint32_t slot = first; slot < first + rows_per_chunk_; ++slot) {
    const SlotInfo info = InfoOf(slot);
    if (info.place == kNone) continue;
    const std::uint32_t to = TakeSlot(info.place, info.number);
    TARN_CHECK(to < first, "a chunk that goes has rows and no room is elsewhere");
    InfoOf(to) = info;
    std::memcpy(SlotRow(to), SlotRow(slot), words_per_row_ * sizeof(std::uint32_t));
    std::uint32_t& word = WordOf(info.place, info.number);
    word = (word & ~kSlotMask) | to;
    FreeSlot(slot);
  }
}

double ResidentRows::WorthOfByte() {
  if (resident() == 0) return 0;
  counts_.clear();
  const std::size_t sample = std::min(kSample, resident());
  if (hand_ >> slot_shift_ >= chunks_.size()) hand_ = 0;
  std::size_t left = std::min(chunks_.size() * rows_per_chunk_, kSampleSlotsMax);
  for (std::uint32_t slot = hand_; counts_.size() < sample && left != 0; --left, slot = SlotAfter(slot))
    if (const SlotInfo& info = InfoOf(slot); info.place != kNone)
      counts_.push_back(static_cast<std::uint8_t>(CountOf(info.place, info.number)));
  if (counts_.empty()) return 0;
  std::ranges::sort(counts_);
  const std::size_t least = std::max<std::size_t>(1, counts_.size() / kVictimWindow);
  double uses = 0;
  for (std::size_t i = 0; i < least; ++i) uses += UsesOf(counts_[i]) + 0.5;
  return uses / static_cast<double>(least * row_bytes_);
}

void ResidentRows::Age(std::uint64_t uses) {
  for (std::uint64_t due = aging_.Due(uses, rows_, resident()); due != 0; --due) {
    for (std::size_t skipped = 0; aged_number_ >= words_[aged_place_].end; ++skipped) {
      if (skipped == words_.size()) return;
      aged_number_ = 0;
      aged_place_ = aged_place_ + 1 == words_.size() ? 0 : aged_place_ + 1;
    }
    std::uint32_t& word = WordOf(aged_place_, aged_number_++);
    const std::uint32_t before = word >> kCountShift & kUseCountMax;
    word -= (before - AfterAging(before, random_)) << kCountShift;
  }
}

}  // namespace tarn::server
