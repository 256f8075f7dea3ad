#include "server/tier/cold_log.h"

#include <algorithm>
#include <utility>

namespace tarn::server {

namespace {

// Maximum bytes of the rows that are collected together: normally, and when there are too many holes or few ids.
constexpr std::size_t kCollectBytes = std::size_t{512} << 10, kCollectBytesMax = std::size_t{2} << 20;
// Holes of up to this many segments are not collected.
constexpr std::size_t kHoleSegments = 4;
// There are too many holes if their bytes are more than this multiple of the live rows' bytes.
constexpr std::uint64_t kTooManyHoles = 2;

}  // namespace

void ColdLog::AddTable(TableId table, std::size_t words, bool collected) {
  if (tables_.size() <= table.value) tables_.resize(table.value + 1);
  TARN_CHECK(!tables_[table.value], "a table is added once");
  tables_[table.value].emplace(TableSegments::Options{.table = table,
                                                      .words = words,
                                                      .collected = collected,
                                                      .segment_bytes = options_.segment_bytes,
                                                      .ids_max = options_.ids_max},
                               store_, &totals_);
}

Expected<ColdId> ColdLog::Append(TableId table, RowOwner owner, const std::uint32_t* words) {
  const auto id = Of(table).Append(owner, words);
  if (id && totals_.open_bytes > 2 * options_.segment_bytes && Of(table).open_bytes() != 0) SealLargest();
  return id;
}

// Many tables with a few cold rows each must not fill the memory with open segments.
void ColdLog::SealLargest() {
  TableSegments* largest = nullptr;
  for (auto& table : tables_)
    if (table && table->open_bytes() > (largest == nullptr ? 0 : largest->open_bytes())) largest = &*table;
  largest->Seal();
}

Status ColdLog::TakeStoreEvents() {
  if (!failed_) return failed_;
  for (ColdEvent& event : store_->TakeEvents()) {
    switch (event.kind) {
      case ColdEvent::Kind::kFailed: return failed_ = std::unexpected(std::move(event.error));
      case ColdEvent::Kind::kFetched: reads_.OnRead(std::move(event.records)); break;
      case ColdEvent::Kind::kWritten: Of(TableId(event.segment.table)).OnWritten(event.segment.number); break;
      case ColdEvent::Kind::kRemoved: Of(TableId(event.segment.table)).OnRemoved(event.segment.number); break;
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
  while (const auto fetch = reads_.Next()) TARN_RETURN_IF_ERROR(Deliver(*fetch));
  Collect();
  return {};
}

Status ColdLog::Deliver(const ColdFetch& fetch) {
  Status taken =
      fetch.receiver == nullptr ? MoveRows(fetch) : fetch.receiver->OnFetched(fetch.table, fetch.ids, fetch.records);
  if (!taken) return failed_ = std::move(taken);
  // End the reads after the delivery: until then no id of their segments is reused.
  for (ColdId id : fetch.ids) Of(fetch.table).EndRead(id);
  return {};
}

// Appends the rows that the collection has fetched again, except those that were freed meanwhile.
Status ColdLog::MoveRows(const ColdFetch& fetch) {
  collecting_ = false;
  const std::size_t words = record_words(fetch.table);
  for (std::size_t i = 0; i < fetch.ids.size(); ++i) {
    const ColdId from = fetch.ids[i];
    if (!Of(fetch.table).IsLive(from)) continue;
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
  const std::uint64_t live = totals_.live_written_bytes, holes = totals_.written_bytes - live;
  const std::optional<TableId> tight = FindTight();
  std::optional<TableId> table = tight;
  if (!table && holes > kHoleSegments * options_.segment_bytes && holes > live) table = FindEmptiest();
  if (!table) return;
  const std::size_t bytes = tight || holes > kTooManyHoles * live
                                ? std::clamp(options_.segment_bytes, kCollectBytes, kCollectBytesMax)
                                : kCollectBytes;
  auto ids = Of(*table).EmptiestRows(std::max<std::size_t>(1, bytes / Of(*table).record_bytes()));
  if (ids.empty()) return;  // all holes are in segments that are not written yet
  collecting_ = true;
  Fetch(*table, std::move(ids), nullptr);
}

// A table with few ids left and many holes (TableSegments::IsTight).
std::optional<TableId> ColdLog::FindTight() const {
  for (std::size_t t = 0; t < tables_.size(); ++t)
    if (tables_[t] && tables_[t]->collected() && tables_[t]->IsTight()) return TableId(static_cast<std::uint32_t>(t));
  return {};
}

// The table of the emptiest segment.
std::optional<TableId> ColdLog::FindEmptiest() const {
  double least = 1;
  std::optional<TableId> found;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (!tables_[t] || !tables_[t]->collected()) continue;
    const double full = tables_[t]->EmptiestFullness();
    if (full >= least) continue;
    least = full;
    found = TableId(static_cast<std::uint32_t>(t));
  }
  return found;
}

std::size_t ColdLog::memory_bytes() const {
  return totals_.open_bytes + totals_.queued_bytes + totals_.list_bytes + reads_.bytes() + store_->memory_bytes();
}

}  // namespace tarn::server
