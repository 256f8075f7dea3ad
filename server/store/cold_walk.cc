#include "server/store/cold_walk.h"

#include <algorithm>

namespace tarn::server {

namespace {

// Number of rows that are sorted by their position on disk before they are read; sorting takes a few milliseconds.
constexpr std::size_t kWindow = 65536;

}  // namespace

void ColdWalk::Clear() {
  found_ = std::vector<Row>();  // `= {}` would not free the memory
  fetching_ = std::vector<Row>();
  next_ = 0;
}

bool ColdWalk::IsFull() const { return found_.size() >= kWindow; }

void ColdWalk::Add(std::uint32_t number, Key key) {
  found_.push_back({table_.resident()->cold_id(rows_.place(), number), number, key});
}

std::size_t ColdWalk::Continue(std::vector<CutRows>* out) {
  if (next_ == 0 && fetching_.empty()) std::ranges::sort(found_, {}, &Row::id);
  const std::size_t before = next_;
  if (!fetching_.empty()) {
    if (!context_->tier->cut().HasRecords()) {
      context_->cut.waits = true;
      return 0;
    }
    Take(out);
  }
  if (next_ == found_.size()) {
    Clear();
    return table_.row_bytes();
  }
  FetchNext(out);
  return (next_ - before + 1) * table_.row_bytes();
}

// Skips rows that were changed or removed since: they were copied before.
void ColdWalk::Take(std::vector<CutRows>* out) {
  std::vector<std::uint32_t> records;
  context_->tier->cut().Take(&records);
  const std::size_t words = records.size() / fetching_.size();
  for (std::size_t i = 0; i < fetching_.size(); ++i) {
    const Row& row = fetching_[i];
    std::uint32_t* record = records.data() + i * words;
    if (!cut_->IsPending(row.number)) continue;
    if (record[0] != rows_.place() || record[1] != row.number) {
      context_->Fail(context_->tier->AnotherRow(table_.id(), {rows_.place(), row.number}));
      break;
    }
    cut_->Keep(row.number, row.key, rows_.PartsAt(reinterpret_cast<float*>(record + kOwnerWords), row.number), out);
  }
  fetching_.clear();
}

// Rows may have been read into memory since, or have moved on the disk.
void ColdWalk::FetchNext(std::vector<CutRows>* out) {
  const std::size_t end =
      std::min(found_.size(), next_ + std::max<std::size_t>(1, kCutFetchBytes / table_.row_bytes()));
  for (; next_ < end; ++next_) {
    Row row = found_[next_];
    if (!cut_->IsPending(row.number)) continue;
    if (const RowParts in_memory = rows_.Parts(row.number); in_memory.values != nullptr) {
      cut_->Keep(row.number, row.key, in_memory, out);
      continue;
    }
    row.id = table_.resident()->cold_id(rows_.place(), row.number);
    fetching_.push_back(row);
  }
  if (fetching_.empty()) return;
  std::ranges::sort(fetching_, {}, &Row::id);
  std::vector<ColdId> ids;
  for (const Row& row : fetching_) ids.push_back(row.id);
  context_->tier->cut().Fetch(table_.id(), std::move(ids));
  // If all rows are still in the write buffer, no disk read will complete later, so poll now.
  if (const Status polled = context_->tier->Poll(); !polled) context_->Fail(polled.error());
}

}  // namespace tarn::server
