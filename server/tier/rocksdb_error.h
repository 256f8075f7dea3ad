// Converts errors of RocksDB. Included only by rocksdb_*.cc.
#pragma once

#include <fmt/format.h>
#include <rocksdb/status.h>

#include <cstddef>
#include <string>

#include "core/error.h"

namespace tarn::server {

// RocksDB names the path in most messages, but not in all; the result names it exactly once.
inline Error RocksDbError(const std::string& path, const char* what, const rocksdb::Status& status) {
  const ErrorCode code = status.IsCorruption() ? ErrorCode::kCorrupt : ErrorCode::kIo;
  std::string text = status.ToString();
  const std::string again = path + ": ";
  for (std::size_t at = text.find(again); at != std::string::npos; at = text.find(again)) text.erase(at, again.size());
  return {code, fmt::format("{}: cannot {}: {}", path, what, text)};
}

}  // namespace tarn::server
