#include "sim/disks/memory_cold_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/crc32c.h"

namespace tarn::server {

void MemoryColdStore::Begin(Job job) {
  jobs_.push_back(std::move(job));
  begun_ ? begun_() : RunOne();
}

void MemoryColdStore::Write(SegmentId segment, std::shared_ptr<const SegmentBytes> bytes) {
  Begin(WriteJob{segment, std::move(bytes)});
}

void MemoryColdStore::Remove(SegmentId segment) { Begin(RemoveJob{segment}); }

void MemoryColdStore::Fetch(std::vector<RecordAt> records, std::size_t record_bytes) {
  Begin(FetchJob{std::move(records), record_bytes});
}

void MemoryColdStore::RunOne() {
  if (jobs_.empty()) return;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  if (error_.code != ErrorCode::kOk) {
    events_.push_back({.kind = ColdEvent::Kind::kFailed, .segment = {}, .records = {}, .error = error_});
    return;
  }
  std::visit([this](auto& one) { Run(one); }, job);
}

void MemoryColdStore::Run(WriteJob& job) {
  Stored stored{*job.bytes, Crc32c(job.bytes->bytes)};
  bytes_ += stored.segment.bytes.size();
  TARN_CHECK(segments_.emplace(job.segment, std::move(stored)).second, "a segment is written once");
  events_.push_back({.kind = ColdEvent::Kind::kWritten, .segment = job.segment, .records = {}, .error = {}});
}

void MemoryColdStore::Run(RemoveJob& job) {
  const auto stored = segments_.find(job.segment);
  TARN_CHECK(stored != segments_.end(), "a removed segment exists");
  bytes_ -= stored->second.segment.bytes.size();
  segments_.erase(stored);
  events_.push_back({.kind = ColdEvent::Kind::kRemoved, .segment = job.segment, .records = {}, .error = {}});
}

void MemoryColdStore::Run(FetchJob& job) {
  ColdEvent event{.kind = ColdEvent::Kind::kFetched, .segment = {}, .records = {}, .error = {}};
  event.records.resize(job.records.size() * job.record_bytes);
  fetches_ += job.records.size();
  if (const Status status = ReadAll(job.records, job.record_bytes, event.records.data()); !status) {
    event.kind = ColdEvent::Kind::kFailed;
    event.error = status.error();
  }
  events_.push_back(std::move(event));
}

Status MemoryColdStore::Read(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) {
  reads_ += records.size();
  if (error_.code != ErrorCode::kOk) return std::unexpected(error_);
  return ReadAll(records, record_bytes, out);
}

Status MemoryColdStore::ReadAll(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) const {
  TARN_CHECK(std::ranges::is_sorted(records), "records are read in order");
  const Stored* stored = nullptr;
  SegmentId at;
  for (const RecordAt& record : records) {
    if (stored == nullptr || at != record.segment) {
      at = record.segment;
      const auto found = segments_.find(at);
      if (found == segments_.end())
        return Fail(ErrorCode::kIo, fmt::format("segment {}/{}: not found", at.table, at.number));
      stored = &found->second;
      if (Crc32c(stored->segment.bytes) != stored->crc32c)
        return Fail(ErrorCode::kCorrupt, fmt::format("segment {}/{}: checksum mismatch", at.table, at.number));
    }
    const std::size_t offset = std::size_t{record.page} * stored->segment.page_bytes + record.offset;
    TARN_CHECK(offset + record_bytes <= stored->segment.bytes.size(), "a record beyond its segment");
    std::memcpy(out, stored->segment.bytes.data() + offset, record_bytes);
    out += record_bytes;
  }
  return {};
}

// Earlier operations end first, to keep the order.
void MemoryColdStore::WaitForWrite() {
  const auto written = [](const Job& job) { return std::holds_alternative<WriteJob>(job); };
  const auto job = std::ranges::find_if(jobs_, written);
  if (job == jobs_.end()) return;
  for (auto n = job - jobs_.begin(); n >= 0; --n) RunOne();
}

bool MemoryColdStore::Damage() {
  if (segments_.empty() || segments_.begin()->second.segment.bytes.empty()) return false;
  segments_.begin()->second.segment.bytes.front() ^= std::byte{1};
  return true;
}

void MemoryColdStore::Forge(const std::function<void(std::span<std::byte>)>& change) {
  for (auto& [id, stored] : segments_) {
    change(stored.segment.bytes);
    stored.crc32c = Crc32c(stored.segment.bytes);
  }
}

}  // namespace tarn::server
