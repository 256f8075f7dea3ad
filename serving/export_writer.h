// Writes an export (serving/export_format.h) from rows in order. Keeps one section in memory. Calls block on disk I/O;
// one thread. Unless stated otherwise, errors are kIo, with the path. After an error, destroy the writer.
//
//   auto writer = ExportWriter::Create("model.tarn", info);
//   writer->BeginTable(spec, salt, ValueCodec::kFp16);
//   writer->Add(partition, key, values);  // partitions ascending, then keys
//   auto totals = writer->Finish();       // now the file exists
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn::serving {

struct ExportInfo {
  std::string job;  // its name
  CheckpointId checkpoint;
  Clock clock;
  std::uint64_t content = 0;       // hash that identifies the state of the exported tables
  CheckpointId base_checkpoint;    // 0: full
  std::uint64_t base_content = 0;  // `content` of the export to which a delta applies
  std::uint32_t partition_bits = 0;
};

struct ExportTotals {
  std::uint64_t rows = 0, removed = 0, bytes = 0;
};

class ExportWriter {
 public:
  // Writes an unnamed or temporary file, which Finish makes durable and names `path`. kNotFound: the folder of `path`
  // does not exist.
  static Expected<std::unique_ptr<ExportWriter>> Create(const std::string& path, ExportInfo info);
  // Removes an unfinished file.
  ~ExportWriter();

  // Ends the current table and begins another one. `salt`: of the table's positions; `codec`: fp32, bf16 or fp16.
  Status BeginTable(const TableSpec& spec, std::uint64_t salt, ValueCodec codec);
  // Adds a row of dim floats, rounded to the table's codec. Rows and removed keys of a table must be added in one
  // order: by partition, then by key. kInvalidArgument: a finite value does not fit in fp16.
  Status Add(PartitionId partition, Key key, std::span<const float> values);
  // For a delta: the key no longer has a row.
  Status AddRemoved(PartitionId partition, Key key);
  // Completes the file. May be called once.
  Expected<ExportTotals> Finish();

 private:
  class Impl;
  explicit ExportWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::serving
