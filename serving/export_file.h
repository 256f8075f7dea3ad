// An export (serving/export_format.h) in memory, usually mapped. Contents of the file are not trusted: every offset and
// count is checked before it is used. An open file is immutable: any thread may read it.
//
//   auto file = ExportFile::Open("model.tarn");
//   const ExportTable* table = file->FindTable("users");
//   if (auto found = file->Find(*table, key); found.row) DecodeValues(table->codec, *found.row, out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/position.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "serving/export_writer.h"

namespace tarn::serving {

struct ExportSection {
  Key first = 0, last = 0;  // the least and the greatest key, removed ones included
  std::uint64_t offset = 0, bytes = 0;
  std::uint32_t rows = 0, removed = 0;
  PartitionId partition;
  std::uint32_t crc32 = 0;
};

struct ExportTable {
  std::string name;
  std::uint32_t dim = 0;
  ValueCodec codec = ValueCodec::kFp32;
  bool dense = false;
  std::uint64_t dense_rows = 0;
  std::string initializer;  // initial values of a key without a row, as text for users
  std::uint64_t rows = 0, removed = 0;
  std::vector<ExportSection> sections;
  Positioner position;

  std::size_t row_bytes() const;
};

class ExportFile {
 public:
  struct Options {
    // Reads every byte and verifies all checksums. If false, verifies only header and index: damaged values may then be
    // returned, but nothing outside the file is ever read.
    bool verify = true;
  };

  // Maps the file. kNotFound, kIo, kCorrupt or kUnsupported (another format version), with the path. The file must not
  // be truncated while it is open (replace it by rename, as ExportWriter does).
  static Expected<ExportFile> Open(const std::string& path, Options options);
  static Expected<ExportFile> Open(const std::string& path) { return Open(path, {}); }
  // The same for 8-byte aligned bytes, which must outlive the result. `origin`: their name in errors.
  static Expected<ExportFile> Parse(std::span<const std::byte> bytes, const std::string& origin, Options options);

  ExportFile(ExportFile&&) noexcept;
  ExportFile& operator=(ExportFile&&) noexcept;
  ~ExportFile();

  const ExportInfo& info() const { return info_; }
  bool is_delta() const { return info_.base_checkpoint.value != 0; }
  const std::vector<ExportTable>& tables() const { return tables_; }
  const ExportTable* FindTable(std::string_view name) const;  // null: not found

  struct Found {
    std::optional<std::span<const std::byte>> row;  // the values in the table's codec
    bool removed = false;                           // a delta has removed the row of the key
  };
  // Finds the row of a key in this file; empty if there is none. `table` is one of tables().
  Found Find(const ExportTable& table, Key key) const;

  // The arrays of a section, in order of key.
  std::span<const Key> Keys(const ExportSection& section) const;
  std::span<const Key> Removed(const ExportSection& section) const;
  std::span<const std::byte> Values(const ExportSection& section) const;

 private:
  class Mapping;
  ExportFile();
  Status Read(std::span<const std::byte> bytes, const std::string& origin, Options options);
  Status ReadIndex(std::span<const std::byte> index, const std::string& origin);
  Status CheckSections(const std::string& origin, bool verify) const;

  std::unique_ptr<Mapping> mapping_;
  std::span<const std::byte> bytes_;
  ExportInfo info_;
  std::vector<ExportTable> tables_;
};

// Decodes `row` to floats; out.size() is the table's dim.
void DecodeValues(ValueCodec codec, std::span<const std::byte> row, std::span<float> out);

}  // namespace tarn::serving
