// Shows that no bytes make the reader of a shard's log crash or allocate memory out of proportion, and that the records
// that it returns can be written and read again.
//
// An input is a byte of flags, then the content of a segment's file after its first page. The test adds that page, with
// a valid header, and a mark, and repairs the checksums of the batches, so that the reader reaches the batches. Flag 1:
// the content includes the first page. Flag 2: checksums are not repaired.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "server/log/log_format.h"
#include "server/log/log_reader.h"
#include "server/log/log_writer.h"
#include "sim/disks/memory_files.h"

namespace tarn::server {
namespace {

constexpr const char* kFolder = "log";
constexpr LogIdentity kIdentity{1, 2, ShardId(3)};

struct Kept : LogSink {
  Status OnRecord(LogSequence, bool, LogRecord record) override {
    records.push_back(std::move(record));
    return {};
  }
  std::vector<LogRecord> records;
};

void Put(FileOps* files, const std::string& name, std::span<const std::byte> bytes) {
  const auto file = files->Create(std::string(kFolder) + "/" + name);
  const std::span<const std::byte> parts[] = {bytes};
  TARN_CHECK(file && (*file)->Write(0, parts), "files in memory do not fail");
}

// Sets the checksums of all batches whose headers can be decoded.
void Repair(std::vector<std::byte>* bytes) {
  for (std::size_t at = kLogPage; at + kBatchHeaderBytes <= bytes->size(); at += kLogPage) {
    const std::span<std::byte> rest = std::span(*bytes).subspan(at);
    auto batch = DecodeBatchHeader(rest);
    if (!batch || batch->bytes > rest.size() - kBatchHeaderBytes) continue;
    batch->crc = Crc32c(rest.subspan(kBatchHeaderBytes, batch->bytes), BatchHeaderCrc(rest));
    const auto header = EncodeBatchHeader(*batch);
    std::copy(header.begin(), header.end(), rest.begin());
  }
}

bool Same(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

void CheckAgain(const std::vector<LogRecord>& records) {
  MemoryDisk disk;
  const auto files = MakeMemoryFileOps(&disk);
  LogWriter writer(files.get(), kFolder, kIdentity, {}, {.allocate_bytes = kLogPage});
  TARN_CHECK(writer.Start(true) && writer.BeginSegment({}) && writer.Write(records) && writer.Sync(true),
             "what was read can be written");
  Kept kept;
  TARN_CHECK(ReadLog(files.get(), kFolder, kIdentity, {}, LogSequence(records.size()), kept), "and read again");
  for (std::size_t i = 0; i < records.size(); ++i)
    TARN_CHECK(Same(records[i].head, kept.records[i].head) && Same(records[i].keys, kept.records[i].keys) &&
                   Same(records[i].values, kept.records[i].values),
               "the same");
}

void Try(std::span<const std::uint8_t> input) {
  if (input.empty()) return;
  const std::uint8_t flags = input[0];
  input = input.subspan(1);
  std::vector<std::byte> bytes(kLogPage + input.size());
  if (!input.empty()) std::memcpy(bytes.data() + (flags % 2 == 0 ? kLogPage : 0), input.data(), input.size());
  if (flags % 2 == 0) {
    const auto header = EncodeSegmentHeader({kIdentity, 1, LogSequence(1), {}});
    std::copy(header.begin(), header.end(), bytes.begin());
  }
  if (flags / 2 % 2 == 0) Repair(&bytes);
  MemoryDisk disk;
  const auto files = MakeMemoryFileOps(&disk);
  Put(files.get(), SegmentName(1), bytes);
  Put(files.get(), kMarkName, EncodeMark(kIdentity, LogSequence(0)));
  Kept kept;
  const auto tail = ReadLog(files.get(), kFolder, kIdentity, {}, {}, kept);
  TARN_CHECK(tail || !tail.error().message.empty(), "an error says something");
  if (tail && !kept.records.empty()) CheckAgain(kept.records);
}

}  // namespace
}  // namespace tarn::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tarn::server::Try({data, size});
  return 0;
}
