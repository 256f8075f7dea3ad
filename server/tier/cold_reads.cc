#include "server/tier/cold_reads.h"

#include <cstring>
#include <utility>

namespace tarn::server {
namespace {

// Copies the records that are in memory. Appends the locations of the others in the store to `at`, and their indices in
// `ids` to `from_store`.
void CopyFromMemory(const TableSegments& segments, std::span<const ColdId> ids, std::uint32_t* records,
                    std::vector<RecordAt>* at, std::vector<std::uint32_t>* from_store) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (segments.CopyFromMemory(ids[i], records + i * segments.record_words())) continue;
    at->push_back(segments.At(ids[i]));
    from_store->push_back(static_cast<std::uint32_t>(i));
  }
}

void CopyFromStore(std::span<const std::byte> read, std::size_t record_bytes, std::span<const std::uint32_t> indices,
                   std::uint32_t* records) {
  TARN_CHECK(read.size() == indices.size() * record_bytes, "the store returned other records than requested");
  for (std::size_t i = 0; i < indices.size(); ++i)
    std::memcpy(records + indices[i] * (record_bytes / sizeof(std::uint32_t)), read.data() + i * record_bytes,
                record_bytes);
}

}  // namespace

Status ColdReads::Read(const TableSegments& segments, std::span<const ColdId> ids, std::uint32_t* records) {
  at_.clear();
  from_store_.clear();
  CopyFromMemory(segments, ids, records, &at_, &from_store_);
  if (at_.empty()) return {};
  buffer_.resize(at_.size() * segments.record_bytes());
  TARN_RETURN_IF_ERROR(store_->Read(at_, segments.record_bytes(), buffer_.data()));
  CopyFromStore(buffer_, segments.record_bytes(), from_store_, records);
  return {};
}

void ColdReads::Begin(TableId table, TableSegments* segments, std::vector<ColdId> ids, FetchReceiver* receiver) {
  Pending pending{.fetch = {.table = table, .ids = std::move(ids), .records = {}, .receiver = receiver},
                  .record_bytes = segments->record_bytes(),
                  .from_store = {}};
  ColdFetch& fetch = pending.fetch;
  fetch.records.resize(fetch.ids.size() * segments->record_words());
  for (ColdId id : fetch.ids) segments->BeginRead(id);
  std::vector<RecordAt> at;
  CopyFromMemory(*segments, fetch.ids, fetch.records.data(), &at, &pending.from_store);
  bytes_ += pending.bytes();
  pending_.push_back(std::move(pending));
  if (!at.empty()) store_->Fetch(std::move(at), segments->record_bytes());
}

std::optional<ColdFetch> ColdReads::Next() {
  if (pending_.empty() || (!pending_.front().from_store.empty() && read_.empty())) return {};
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  bytes_ -= pending.bytes();
  if (!pending.from_store.empty()) {
    CopyFromStore(read_.front(), pending.record_bytes, pending.from_store, pending.fetch.records.data());
    read_.pop_front();
  }
  return std::move(pending.fetch);
}

}  // namespace tarn::server
