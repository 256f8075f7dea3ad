// What readers and writers of checkpoint files share of RocksDB. Included by server/rocksdb_*.cc only.
#pragma once

#include <fmt/format.h>
#include <rocksdb/options.h>
#include <rocksdb/status.h>
#include <rocksdb/table.h>

#include <string>

#include "core/error.h"
#include "server/checkpoint/file_sum.h"

namespace tarn::server {

inline rocksdb::Options CheckpointFileOptions() {
  rocksdb::BlockBasedTableOptions table;
  table.block_size = 64 << 10;
  table.format_version = 5;
  rocksdb::Options options;
  options.compression = rocksdb::kNoCompression;  // floats of trained rows do not shrink
  options.use_fsync = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// RocksDB's messages name the path on most errors only; ours name it once.
inline Error RocksDbError(const std::string& path, const char* what, const rocksdb::Status& status) {
  const ErrorCode code = status.IsCorruption() ? ErrorCode::kCorrupt : ErrorCode::kIo;
  std::string text = status.ToString();
  const std::string again = path + ": ";
  for (std::size_t at = text.find(again); at != std::string::npos; at = text.find(again)) text.erase(at, again.size());
  return {code, fmt::format("{}: cannot {}: {}", path, what, text)};
}

}  // namespace tarn::server
