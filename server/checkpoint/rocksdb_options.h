// How RocksDB reads and writes the files of a checkpoint. Included by server/checkpoint/rocksdb_*.cc only.
#pragma once

#include <rocksdb/options.h>
#include <rocksdb/table.h>

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

}  // namespace tarn::server
