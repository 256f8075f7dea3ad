// Writes one shard's part of a checkpoint (server/checkpoint_format.h) as its rows come. Holds the rows of the
// partition at hand, which come in no order, and of no other. Blocks; one thread at a time.
//
//   RocksDbCheckpointWriter writer(head, directory);
//   for (CutRows& chunk : chunks) if (auto status = writer.Put(std::move(chunk)); !status) ...;
//   CheckpointPart part = writer.Finish();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "server/snapshot.h"

namespace rocksdb {
class SstFileWriter;
}

namespace tarn::server {

class RocksDbCheckpointWriter {
 public:
  // `head.tables` are in order of id and have no rows yet.
  RocksDbCheckpointWriter(Snapshot head, std::string directory);
  ~RocksDbCheckpointWriter();
  RocksDbCheckpointWriter(const RocksDbCheckpointWriter&) = delete;
  RocksDbCheckpointWriter& operator=(const RocksDbCheckpointWriter&) = delete;

  // More rows, in order of table and partition. After an error nothing more may be put.
  Status Put(CutRows chunk);
  // Makes it durable. What is returned says how that went; the directory is there even if there were no rows.
  CheckpointPart Finish();
  // The part that says that writing failed.
  CheckpointPart Failed(const Error& error) const;
  // Removes what was written.
  void Abandon();

 private:
  std::string path() const;
  Status Open();
  Status WritePartition();
  Status Close(std::vector<CheckpointFile>* files);

  Snapshot head_;
  std::string directory_;
  std::unique_ptr<rocksdb::SstFileWriter> file_;  // from the first row on
  const TableRows* table_ = nullptr;              // of the partition at hand
  std::vector<PartitionRows> chunks_;             // of the partition at hand
  std::uint64_t rows_ = 0, state_hash_ = 0;
};

}  // namespace tarn::server
