// log_corpus FOLDER: writes the first inputs of log_fuzz.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "server/log/log_format.h"
#include "server/log/log_writer.h"
#include "sim/disks/memory_files.h"

namespace {

using namespace tarn::server;
using tarn::Buffer;

LogRecord RecordOf(std::size_t head, std::size_t keys, std::size_t values) {
  LogRecord record{Buffer::Allocate(head), Buffer::Allocate(keys), Buffer::Allocate(values)};
  for (Buffer* part : {&record.head, &record.keys, &record.values})
    for (std::byte& byte : part->as_mutable<std::byte>()) byte = std::byte(part->size());
  return record;
}

void Write(const std::string& path, char flags, const std::vector<LogRecord>& first,
           const std::vector<LogRecord>& second) {
  MemoryDisk disk;
  const auto files = MakeMemoryFileOps(&disk);
  LogWriter writer(files.get(), "log", {1, 2, tarn::ShardId(3)}, {}, {.allocate_bytes = kLogPage});
  if (!writer.Start(true) || !writer.BeginSegment({})) return;
  if (!writer.Write(first) || !writer.Sync(true) || !writer.Write(second)) return;
  std::vector<std::byte> bytes = *disk.Find("log/" + SegmentName(1));
  if (flags % 2 == 0) bytes.erase(bytes.begin(), bytes.begin() + kLogPage);
  while (!bytes.empty() && bytes.back() == std::byte{0}) bytes.pop_back();
  std::ofstream out(path, std::ios::binary);
  out.put(flags);
  out.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') return std::fputs("usage: log_corpus FOLDER\n", stderr), 2;
  const std::string folder = argv[1];
  Write(folder + "/two-batches", 0, {RecordOf(4, 8, 12)}, {RecordOf(1, 0, 0), RecordOf(2, 3, 4)});
  Write(folder + "/own-header", 1, {RecordOf(4, 8, 12)}, {RecordOf(1, 0, 0)});
  Write(folder + "/own-checksums", 2, {RecordOf(4, 8, 12)}, {RecordOf(0, 0, 0)});
  Write(folder + "/longer", 0, {RecordOf(40, 800, 4000)}, {RecordOf(1, 0, 0)});
  return 0;
}
