#include "server/tier/resident_rows.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "server/tier/use_count.h"

namespace tarn::server {

namespace {

// How many slots ahead the state of a slot's row is prefetched.
constexpr std::size_t kAhead = 16;
// Sample size for the value of a byte.
constexpr std::size_t kSample = 4 * kVictimWindow;
// Maximum number of slots examined for the sample, because most slots may be free.
constexpr std::size_t kSampleSlotsMax = 64 * kSample;

// The number of uses that a count represents.
double UsesOf(std::uint32_t count) {
  return count <= kExactUses ? count : kExactUses + std::exp2(count - kExactUses + 1) - 2;
}

}  // namespace

float* ResidentRows::Add(std::uint32_t place, std::uint32_t number) {
  const std::uint32_t slot = slots_.Take(place, number);
  states_.Add(place, number, slot);
  return slots_.Row(slot);
}

void ResidentRows::Remove(std::uint32_t place, std::uint32_t number) {
  const RowState& state = states_.At(place, number);
  if (state.is_cold()) {
    log_->Free(table_, state.cold_id());
  } else {
    MarkChanged(place, number);
    slots_.Free(state.slot());
  }
  states_.Remove(place, number);
}

float* ResidentRows::Install(std::uint32_t place, std::uint32_t number, const std::uint32_t* words) {
  RowState& state = states_.At(place, number);
  const std::uint32_t slot = slots_.Take(place, number);
  slots_.Of(slot).copy = state.cold_id() & (kColdIds - 1);
  slots_.Write(slot, words);
  state.MoveTo(slot, true);
  return slots_.Row(slot);
}

float* ResidentRows::Overwrite(std::uint32_t place, std::uint32_t number) {
  RowState& state = states_.At(place, number);
  if (!state.is_cold()) {
    MarkChanged(place, number);
    return slots_.Row(state.slot());
  }
  log_->Free(table_, state.cold_id());
  const std::uint32_t slot = slots_.Take(place, number);
  state.MoveTo(slot, false);
  return slots_.Row(slot);
}

void ResidentRows::DropCopy(std::uint32_t place, std::uint32_t number) {
  RowState& state = states_.At(place, number);
  log_->Free(table_, slots_.Of(state.slot()).copy);
  state.DropCopy();
}

bool ResidentRows::OnMoved(RowOwner owner, ColdId from, ColdId to) {
  if (!states_.Has(owner.place, owner.number)) return false;
  RowState& state = states_.At(owner.place, owner.number);
  if (state.is_cold()) {
    if (state.cold_id() != from) return false;
    state.MoveToDisk(to);
    return true;
  }
  if (!state.has_copy() || slots_.Of(state.slot()).copy != from) return false;
  slots_.Of(state.slot()).copy = to & (kColdIds - 1);
  return true;
}

std::uint32_t ResidentRows::CountIn(std::uint32_t slot) const {
  const RowSlots::Info& info = slots_.Of(slot);
  return states_.At(info.place, info.number).count();
}

// Adds the slot at the clock hand to the candidates if its row may be evicted.
void ResidentRows::ExamineNext() {
  RowSlots::Info& info = slots_.Of(hand_);
  if (info.place != RowSlots::kNone && !info.spared) candidates_.push_back(hand_);
  info.spared = false;
  hand_ = slots_.After(hand_);
}

// Sets candidates_ to the slots of at most `wanted` rows: those with the lowest use counts among the rows at the clock
// hand.
void ResidentRows::FindVictims(std::size_t wanted) {
  const std::size_t examined = std::min(resident(), wanted * kVictimWindow);
  candidates_.clear();
  if (!slots_.Has(hand_)) hand_ = 0;
  for (std::size_t left = slots_.used() + slots_.free(); left != 0 && candidates_.size() < examined; --left)
    ExamineNext();
  counts_.clear();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (i + kAhead < candidates_.size()) {
      const RowSlots::Info& ahead = slots_.Of(candidates_[i + kAhead]);
      PrefetchWord(ahead.place, ahead.number);
    }
    counts_.push_back(static_cast<std::uint8_t>(CountIn(candidates_[i])));
  }
  KeepLeastUsed(&candidates_, counts_, wanted);
}

// Evicts in order of partition, because a cut reads the cold rows of one partition after the other and then finds
// several in a page.
Status ResidentRows::Evict(std::size_t wanted) {
  for (wanted = std::min(wanted, resident()); wanted != 0; wanted -= candidates_.size()) {
    FindVictims(wanted);
    std::ranges::sort(candidates_, {}, [this](std::uint32_t slot) {
      const RowSlots::Info& info = slots_.Of(slot);
      return std::tuple(info.place, info.number);
    });
    for (std::uint32_t slot : candidates_) TARN_RETURN_IF_ERROR(EvictSlot(slot));
  }
  return {};
}

Status ResidentRows::EvictSlot(std::uint32_t slot) {
  const RowSlots::Info info = slots_.Of(slot);
  RowState& state = states_.At(info.place, info.number);
  ColdId id = info.copy;
  if (!state.has_copy()) {
    if (!log_->HasRoom()) TARN_RETURN_IF_ERROR(log_->WaitForRoom());
    const auto* row = reinterpret_cast<const std::uint32_t*>(slots_.Row(slot));
    const auto appended = log_->Append(table_, {info.place, info.number}, row);
    if (!appended) return std::unexpected(appended.error());
    id = *appended;
  }
  state.MoveToDisk(id);
  slots_.Free(slot);
  return {};
}

Status ResidentRows::ReleaseChunk() {
  TARN_CHECK(slots_.chunks() > 1, "a table keeps a chunk");
  const std::size_t to_move = slots_.RowsInLastChunk();
  const std::size_t free_elsewhere = slots_.free() - (slots_.rows_per_chunk() - to_move);
  // Some evicted rows may be in the chunk itself; then a few more than necessary are evicted.
  if (to_move > free_elsewhere) TARN_RETURN_IF_ERROR(Evict(to_move - free_elsewhere));
  EmptyLastChunk();
  slots_.DropLastChunk();
  return {};
}

// Low slots are used first, so rows of the last chunk move to earlier ones.
void ResidentRows::EmptyLastChunk() {
  const std::uint32_t first = slots_.LastChunk();
  for (std::uint32_t slot = first; slot < first + slots_.rows_per_chunk(); ++slot) {
    const RowSlots::Info info = slots_.Of(slot);
    if (info.place == RowSlots::kNone) continue;
    const std::uint32_t to = slots_.Take(info.place, info.number);
    TARN_CHECK(to < first, "the rows of a chunk that is released do not fit into the others");
    slots_.Of(to) = info;
    slots_.Write(to, reinterpret_cast<const std::uint32_t*>(slots_.Row(slot)));
    RowState& state = states_.At(info.place, info.number);
    state.MoveTo(to, state.has_copy());
    slots_.Free(slot);
  }
}

double ResidentRows::WorthOfByte() {
  if (resident() == 0) return 0;
  counts_.clear();
  const std::size_t sample = std::min(kSample, resident());
  if (!slots_.Has(hand_)) hand_ = 0;
  std::size_t left = std::min(slots_.used() + slots_.free(), kSampleSlotsMax);
  for (std::uint32_t slot = hand_; counts_.size() < sample && left != 0; --left, slot = slots_.After(slot))
    if (slots_.Of(slot).place != RowSlots::kNone) counts_.push_back(static_cast<std::uint8_t>(CountIn(slot)));
  if (counts_.empty()) return 0;
  std::ranges::sort(counts_);
  const std::size_t least = std::max<std::size_t>(1, counts_.size() / kVictimWindow);
  double uses = 0;
  for (std::size_t i = 0; i < least; ++i) uses += UsesOf(counts_[i]) + 0.5;
  return uses / static_cast<double>(least * row_bytes());
}

}  // namespace tarn::server
