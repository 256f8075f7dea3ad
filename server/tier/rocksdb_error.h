// RocksDB's errors as ours. Included by rocksdb_*.cc only.
#pragma once

#include <fmt/format.h>
#include <rocksdb/status.h>

#include <cstddef>
#include <string>

#include "core/error.h"

namespace tarn::server {

// RocksDB's messages name the path on most errors only; ours name it once.
inline Error RocksDbError(const std::string& path, const char* what, const rocksdb::Status& status) {
  const ErrorCode code = status.IsCorruption() ? ErrorCode::kCorrupt : ErrorCode::kIo;
  std::string text = status.ToString();
  const std::string again = path + ": ";
  for (std::size_t at = text.find(again); at != std::string::npos; at = text.find(again)) text.erase(at, again.size());
  return {code, fmt::format("{}: cannot {}: {}", path, what, text)};
}

}  // namespace tarn::server
