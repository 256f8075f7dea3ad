#include "server/store/fragment_cut.h"

#include <algorithm>
#include <utility>

#include "core/limits.h"

namespace tarn::server {

namespace {

// Removed keys per chunk.
constexpr std::size_t kRemovedChunk = limits::kCutSliceBytes / sizeof(Key);

}  // namespace

std::size_t HeldBytes(const PartitionRows& chunk) {
  return chunk.keys.capacity() * sizeof(Key) + chunk.rows.capacity() * sizeof(std::uint32_t);
}

void FragmentCut::Begin(std::uint64_t rows, Verdicts verdicts, FragmentState state) {
  open_ = true;
  rows_ = rows;
  verdicts_ = std::move(verdicts);
  fragment_state_ = std::move(state);
  state_.reset();
}

void FragmentCut::Drop() {
  open_ = false;
  rows_ = 0;
  verdicts_ = {};
  fragment_state_ = {};
  state_.reset();
}

bool FragmentCut::IsExpired(const RowLife* life) const {
  return !verdicts_.empty() && verdicts_.Expired(*table_.rules(), *life);
}

bool FragmentCut::IsWanted(std::uint64_t number) const {
  return context_->cut.request.scope == CutScope::kAll || marks_.InCut(number);
}

bool FragmentCut::NeedsValues(std::uint64_t number, const RowLife* life) const {
  return !IsExpired(life) && (context_->cut.request.hash_all || IsWanted(number));
}

bool FragmentCut::MustVisit(std::uint64_t number) const {
  return number < rows_ && IsPending(number) &&
         (context_->cut.request.hash_all || !verdicts_.empty() || IsWanted(number));
}

void FragmentCut::LeaveOut(std::uint64_t number) {
  if (open_ && number < rows_) EnsureState().settled.Set(number);
}

bool FragmentCut::Keep(std::uint64_t number, Key key, const RowParts& row, std::vector<CutRows>* out) {
  if (IsExpired(row.life)) return KeepExpired(number, key, out);
  const bool wanted = IsWanted(number);
  if (!wanted && !context_->cut.request.hash_all) return false;
  State& state = EnsureState();
  if (state.settled.Test(number)) return false;
  state.settled.Set(number);
  if (context_->cut.request.hash_all) {
    context_->record.clear();
    table_.AppendRecord(row, &context_->record);
    context_->cut.hash += RowHash(table_.salt(), key, context_->record);
  }
  if (wanted) CopyRow(key, row, out);
  return true;
}

// Lists a row that had expired when the cut began as a removed key. A cut of all rows only leaves the row out.
bool FragmentCut::KeepExpired(std::uint64_t number, Key key, std::vector<CutRows>* out) {
  if (context_->cut.request.scope == CutScope::kAll || EnsureState().settled.Test(number)) return false;
  state_->settled.Set(number);
  PartitionRows& to = ChunkOf(out == nullptr);
  to.removed.push_back(key);
  if (out != nullptr && to.removed.size() == kRemovedChunk) out->push_back({table_.id(), std::exchange(to, {})});
  return true;
}

void FragmentCut::RecordRemoved(Key key) { ChunkOf(true).removed.push_back(key); }

std::size_t FragmentCut::ChunkRowsMax(bool early) const {
  // Chunks for rows copied early are small, because many fragments hold one at the same time.
  const std::size_t bytes = early ? context_->cut.early_chunk_bytes : limits::kCutSliceBytes;
  return std::min<std::uint64_t>(rows_, std::max<std::size_t>(1, bytes / table_.row_bytes()));
}

// The chunk for the next row: that of the walk, or that of rows copied early.
PartitionRows& FragmentCut::ChunkOf(bool early) {
  State& state = EnsureState();
  const std::size_t capacity = ChunkRowsMax(early);
  const auto full = [capacity](const PartitionRows& chunk) {
    return chunk.keys.size() >= capacity || chunk.removed.size() == kRemovedChunk;
  };
  if (early && !std::exchange(state.holds_early, true)) context_->cut.holding_early.push_back(this);
  if (early && (state.early.empty() || full(state.early.back()))) state.early.emplace_back();
  PartitionRows& chunk = early ? state.early.back() : state.chunk;
  chunk.partition = partition_;
  return chunk;
}

void FragmentCut::CopyRow(Key key, const RowParts& row, std::vector<CutRows>* out) {
  const bool early = out == nullptr;
  const std::size_t capacity = ChunkRowsMax(early);
  if (early) context_->cut.early_bytes += table_.row_bytes();
  PartitionRows& to = ChunkOf(early);
  const std::size_t held = HeldBytes(to);
  if (to.keys.empty()) {
    to.keys.reserve(capacity);
    to.rows.reserve(capacity * table_.row_words());
  }
  to.keys.push_back(key);
  table_.AppendRecord(row, &to.rows);
  if (early) return CountEarly(HeldBytes(to) - held);
  if (to.keys.size() >= capacity) out->push_back({table_.id(), std::exchange(to, {})});
}

void FragmentCut::CountEarly(std::size_t bytes) {
  CutContext& cut = context_->cut;
  cut.early_held_bytes += bytes;
  if (context_->tier == nullptr || !context_->tier->cut().MustSpill(cut.early_held_bytes)) return;
  // One fragment after the other, so that rows that are read together are stored together.
  for (FragmentCut* fragment : std::exchange(cut.holding_early, {})) fragment->SpillEarlyRows();
}

void FragmentCut::HandOutState(std::vector<CutRows>* out) {
  FragmentState state = std::exchange(fragment_state_, {});
  if (state.version.value == 0) return;
  if (context_->cut.request.hash_all) context_->cut.hash += FragmentHash(table_.salt(), partition_, state.words);
  PartitionRows alone{.partition = partition_, .keys = {}, .rows = {}, .removed = {}, .seen = {}};
  alone.state = std::move(state);
  out->push_back({table_.id(), std::move(alone)});
}

std::size_t FragmentCut::HandOutRest(std::size_t bytes, std::vector<CutRows>* out) {
  std::size_t handed = 0;
  HandOutState(out);
  if (state_) {
    if (PartitionRows& last = state_->chunk; !last.keys.empty() || !last.removed.empty())
      out->push_back({table_.id(), std::exchange(last, {})});
    std::vector<PartitionRows>& chunks = state_->early;
    for (; handed < bytes && !chunks.empty(); chunks.pop_back()) {
      handed += ByteCount(chunks.back());
      context_->cut.early_held_bytes -= HeldBytes(chunks.back());
      out->push_back({table_.id(), std::move(chunks.back())});
    }
    if (!chunks.empty()) return handed;
    if (!state_->spilled.ids.empty()) return handed + HandOutSpilled(out);
    if (state_->holds_early) std::erase(context_->cut.holding_early, this);
  }
  Drop();
  return handed;
}

// Moves the rows only; removed keys stay in memory.
void FragmentCut::SpillEarlyRows() {
  state_->holds_early = false;
  for (PartitionRows& chunk : state_->early) {
    for (std::size_t i = 0; i < chunk.keys.size(); ++i) {
      const auto id = context_->tier->cut().Spill(table_.id(), table_.row_words(), chunk.keys[i],
                                                  chunk.rows.data() + i * table_.row_words());
      if (!id) return context_->Fail(id.error());
      state_->spilled.ids.push_back(*id);
    }
    context_->cut.early_held_bytes -= HeldBytes(chunk);
    chunk.keys = std::vector<Key>();  // `= {}` would not free the memory, and HandOutRest would subtract it again
    chunk.rows = std::vector<std::uint32_t>();
  }
  std::erase_if(state_->early, [](const PartitionRows& chunk) { return chunk.removed.empty(); });
}

// Adds the slice of spilled rows that was fetched last to the cut, and starts to fetch the next one. Returns the cost
// in copied bytes; 0 while the fetch has not ended.
std::size_t FragmentCut::HandOutSpilled(std::vector<CutRows>* out) {
  SpilledRows& spilled = state_->spilled;
  const std::size_t taken = spilled.fetching;
  if (taken != 0) {
    if (!context_->tier->cut().HasRecords()) {
      context_->cut.waits = true;
      return 0;
    }
    TakeSpilled(out);
  }
  if (spilled.next < spilled.ids.size())
    FetchSpilled();
  else
    spilled = {};
  return (taken + 1) * table_.row_bytes();
}

void FragmentCut::TakeSpilled(std::vector<CutRows>* out) {
  SpilledRows& spilled = state_->spilled;
  std::vector<std::uint32_t> records;
  context_->tier->cut().Take(&records);
  PartitionRows rows{.partition = partition_, .keys = {}, .rows = {}, .removed = {}, .seen = {}};
  const std::size_t words = table_.row_words();
  for (std::size_t i = 0; i < spilled.fetching; ++i) {
    const std::uint32_t* record = records.data() + i * (kOwnerWords + words);
    const Key key = Key{record[0]} << 32 | record[1];
    if (table_.PartitionOf(key) != partition_)
      return context_->Fail(context_->tier->WrongPartitionError(table_.id(), key, partition_));
    rows.keys.push_back(key);
    rows.rows.insert(rows.rows.end(), record + kOwnerWords, record + kOwnerWords + words);
  }
  out->push_back({table_.id(), std::move(rows)});
  context_->tier->cut().FreeSpilled(table_.id(), std::span(spilled.ids).subspan(spilled.next, spilled.fetching));
  spilled.next += spilled.fetching;
  spilled.fetching = 0;
}

void FragmentCut::FetchSpilled() {
  SpilledRows& spilled = state_->spilled;
  spilled.fetching =
      std::min(spilled.ids.size() - spilled.next, std::max<std::size_t>(1, kCutFetchBytes / table_.row_bytes()));
  const auto ids = std::span(spilled.ids).subspan(spilled.next, spilled.fetching);
  // Required by FetchSpilled. Ids ascend within a segment, but a later segment may have lower ones.
  std::ranges::sort(ids);
  context_->tier->cut().FetchSpilled(table_.id(), {ids.begin(), ids.end()});
  // If all rows are still in the write buffer, no disk read will complete later, so poll now.
  if (const Status polled = context_->tier->Poll(); !polled) context_->Fail(polled.error());
}

std::size_t FragmentCut::memory_bytes() const {
  if (!state_) return 0;
  return state_->settled.memory_bytes() + state_->spilled.ids.capacity() * sizeof(ColdId) + HeldBytes(state_->chunk) +
         state_->early.capacity() * sizeof(PartitionRows);
}

}  // namespace tarn::server
