#include "server/store/tier_reader.h"

#include <algorithm>
#include <vector>

#include "server/tier/resident_rows.h"

namespace tarn::server {

namespace {

// Number of attempts to make room only for the rows that are on disk or absent. If all fail, room is made for all rows
// of the span.
constexpr int kAttempts = 4;
// The store's memory outside the tier is counted again after so many spans.
constexpr std::uint32_t kCountPeriod = 64;

}  // namespace

// Stores the owners of the rows on disk, among the next `rows` keys of a message, in the context. Returns the number of
// keys without a row. `mark_used`: the next eviction pass skips the rows in memory.
std::size_t TierReader::FindCold(const Table& table, KeyCursor cursor, std::size_t rows, bool mark_used) {
  std::size_t absent = 0;
  std::vector<RowOwner>& owners = context_->owners;
  owners.clear();
  RowFinder(table, *context_).ForEachGroup(Ahead::kWords, rows, &cursor, [&](const RowGroup& group) {
    for (std::size_t i = 0; i < group.n; ++i) {
      if (group.numbers[i] == RowIndex::kNone) {
        ++absent;
        continue;
      }
      const RowOwner owner{group.sparse(i)->rows().place(), group.numbers[i]};
      if (table.resident()->IsCold(owner.place, owner.number))
        owners.push_back(owner);
      else if (mark_used)
        table.resident()->Spare(owner.place, owner.number);
    }
  });
  return absent;
}

Expected<std::size_t> TierReader::LoadColdRows(const Table& table, const KeyCursor& cursor) {
  if (++spans_ % kCountPeriod == 0) CountStoreBytes();
  ResidentRows* resident = table.resident();
  Residency& tier = *context_->tier;
  const std::size_t rows = std::min(tier.SpanRows(*resident), cursor.left());
  tier.CountUses(resident, rows);
  if (resident->cold() == 0 && tier.Grow(resident, rows)) return rows;
  // Making room for some rows may evict others of the same message, which are then on disk too. This rarely happens
  // twice.
  bool enough = false;
  for (int attempt = 0; attempt < kAttempts && !enough; ++attempt) {
    const std::size_t absent = FindCold(table, cursor, rows, attempt != 0);
    enough = resident->free_slots() >= absent + context_->owners.size();
    if (!enough && attempt != 0) TARN_RETURN_IF_ERROR(tier.Reserve(resident, absent + context_->owners.size()));
  }
  if (!enough) {
    TARN_RETURN_IF_ERROR(tier.Reserve(resident, rows));
    FindCold(table, cursor, rows, false);
  }
  TARN_RETURN_IF_ERROR(tier.LoadRows(resident, &context_->owners));
  return rows;
}

FetchTicket TierReader::Fetch(const Table& table, const KeyCursor& cursor) {
  if (table.resident() == nullptr || table.resident()->cold() == 0) return 0;
  FindCold(table, cursor, cursor.left(), false);
  return context_->tier->Fetch(table.resident(), context_->owners);
}

Status TierReader::Maintain(std::size_t other_bytes) {
  TARN_RETURN_IF_ERROR(context_->tier->Poll());
  bytes_outside_store_ = other_bytes;
  context_->tier->SetOtherBytes(bytes_outside_store_ + store_bytes_outside_tier_);
  return context_->tier->Balance();
}

// Counts the store's memory outside the tier: indices, lives and marks, which grow as rows are inserted.
void TierReader::CountStoreBytes() {
  store_bytes_outside_tier_ = memory_bytes_() - context_->tier->memory_bytes();
  context_->tier->SetOtherBytes(bytes_outside_store_ + store_bytes_outside_tier_);
}

}  // namespace tarn::server
