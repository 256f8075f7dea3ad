// Shows that no bytes make the reader of exports crash or read outside them. Reads every input twice: as it is, with
// verification; and without it, after the checksums of header and index are repaired, because a wrong checksum would
// end the reading early. export_corpus (export_corpus_main.cc) writes the first inputs, corpus/export.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "serving/export_file.h"
#include "serving/export_format.h"

namespace tarn::serving {
namespace {

void SetChecksums(std::span<std::byte> bytes) {
  ExportHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.file_bytes = bytes.size();
  if (header.index_offset <= bytes.size() && header.index_bytes <= bytes.size() - header.index_offset)
    header.index_crc32 = Crc32(bytes.subspan(header.index_offset, header.index_bytes));
  header.crc32 = Crc32(std::as_bytes(std::span(&header, 1)).subspan(kHeaderSummedFrom));
  std::memcpy(bytes.data(), &header, sizeof header);
}

// Looks up at most 100 keys and 100 removed keys of each section, and the key after each.
void LookUp(const ExportFile& file) {
  std::vector<float> values;
  for (const ExportTable& table : file.tables()) {
    values.resize(table.dim);
    for (const ExportSection& section : table.sections) {
      TARN_CHECK(file.Values(section).size() == section.rows * table.row_bytes(), "a value for each row");
      for (const auto keys : {file.Keys(section), file.Removed(section)})
        for (std::size_t i = 0; i < keys.size() && i < 100; ++i)
          for (const Key key : {keys[i], keys[i] + 1})
            if (const auto found = file.Find(table, key); found.row) DecodeValues(table.codec, *found.row, values);
    }
  }
}

}  // namespace
}  // namespace tarn::serving

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint64_t> aligned(size / 8 + 1);
  std::memcpy(aligned.data(), data, size);
  const auto bytes = std::as_writable_bytes(std::span(aligned)).first(size);
  for (const bool repaired : {false, true}) {
    if (repaired) tarn::serving::SetChecksums(bytes);
    const auto file = tarn::serving::ExportFile::Parse(bytes, "input", {.verify = !repaired});
    if (file) tarn::serving::LookUp(*file);
  }
  return 0;
}
