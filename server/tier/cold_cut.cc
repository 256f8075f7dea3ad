#include "server/tier/cold_cut.h"

#include <algorithm>
#include <utility>

#include "core/limits.h"

namespace tarn::server {
namespace {

// Limit of the memory of rows copied early for a cut: a share of the budget. Beyond it all of them are moved to disk
// in one step, which takes a few milliseconds.
constexpr std::size_t kSpillShare = 32, kSpillBytesMax = std::size_t{16} << 20;

// The table of the cold log for spilled rows of `table`.
TableId SpillTableOf(TableId table) { return TableId(limits::kTablesMax + 1 + table.value); }

}  // namespace

void ColdCut::SetLimit(std::size_t bytes) { held_bytes_max_ = std::min(bytes / kSpillShare, kSpillBytesMax); }

void ColdCut::Fetch(TableId table, std::vector<ColdId> ids) {
  ++fetching_;
  log_->Fetch(table, std::move(ids), this);
}

Status ColdCut::OnFetched(TableId, std::span<const ColdId>, std::span<const std::uint32_t> records) {
  --fetching_;
  if (dropped_ != 0)
    --dropped_;
  else
    records_.emplace_back(records.begin(), records.end());
  return {};
}

bool ColdCut::Take(std::vector<std::uint32_t>* records) {
  if (records_.empty()) return false;
  *records = std::move(records_.front());
  records_.pop_front();
  return true;
}

void ColdCut::Drop() {
  records_.clear();
  dropped_ = fetching_;
  for (TableId table : spilled_) log_->FreeAll(SpillTableOf(table));
}

Expected<ColdId> ColdCut::Spill(TableId table, std::size_t words, Key key, const std::uint32_t* record) {
  if (spilled_.insert(table).second) log_->AddTable(SpillTableOf(table), words, false);
  if (!log_->HasRoom()) TARN_RETURN_IF_ERROR(log_->WaitForRoom());
  const RowOwner owner{static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key)};
  return log_->Append(SpillTableOf(table), owner, record);
}

void ColdCut::FetchSpilled(TableId table, std::vector<ColdId> ids) { Fetch(SpillTableOf(table), std::move(ids)); }

void ColdCut::FreeSpilled(TableId table, std::span<const ColdId> ids) {
  for (ColdId id : ids) log_->Free(SpillTableOf(table), id);
}

bool ColdCut::MustSpill(std::size_t held_bytes) const {
  return held_bytes > held_bytes_max_ && (log_->HasRoom() || held_bytes > 2 * held_bytes_max_);
}

}  // namespace tarn::server
