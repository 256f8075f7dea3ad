// Writes one shard's part of a checkpoint (server/checkpoint/checkpoint_format.h) as its rows come. Of the partition at
// hand, whose rows come in no order, it holds so many bytes at most; of others none. Blocks; one thread at a time.
//
//   RocksDbCheckpointWriter writer(head, directory);
//   if (auto status = writer.Begin(); !status) ...;
//   for (CutRows& chunk : chunks) if (auto status = writer.Put(std::move(chunk)); !status) ...;
//   CheckpointPart part = writer.Finish({});
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/limits.h"
#include "core/message.h"
#include "server/store/snapshot.h"

namespace tarn::server {

class SortedFile;  // server/checkpoint/rocksdb_sorted_file.h

class RocksDbCheckpointWriter {
 public:
  // `head.tables` are in order of id and have no rows yet.
  RocksDbCheckpointWriter(Snapshot head, std::string directory,
                          std::size_t run_bytes_max = limits::kCheckpointRunBytes);
  ~RocksDbCheckpointWriter();
  RocksDbCheckpointWriter(const RocksDbCheckpointWriter&) = delete;
  RocksDbCheckpointWriter& operator=(const RocksDbCheckpointWriter&) = delete;

  // Makes the directory and takes over the shard's share of the base's files. After an error nothing may be put.
  Status Begin();
  // More rows, in order of table and partition. After an error nothing more may be put.
  Status Put(CutRows chunk);
  // Makes it durable. What is returned says how that went.
  CheckpointPart Finish(std::optional<std::uint64_t> whole_hash);
  // The part that says that writing failed.
  CheckpointPart Failed(const Error& error) const;
  // Removes what was written.
  void Abandon();

 private:
  Status WriteRun();
  Status WriteSeen();
  Status WriteStates();
  Status EndPartition();
  Status CloseAll(std::vector<CheckpointFile>* files);
  Expected<SortedFile*> File(std::size_t number);

  Snapshot head_;
  std::string directory_;
  std::size_t run_bytes_max_;
  std::vector<std::unique_ptr<SortedFile>> files_;  // of rows, by number; each has at most one run of a partition
  std::unique_ptr<SortedFile> seen_file_;
  // Of the partition at hand.
  const TableRows* table_ = nullptr;
  PartitionId partition_;
  std::vector<PartitionRows> chunks_;
  std::size_t chunk_bytes_ = 0;
  std::size_t runs_ = 0;  // written
  std::vector<Seen> seen_;

  std::map<std::pair<PartitionId, TableId>, FragmentState> states_;
  std::map<TableId, CheckpointTable> tables_;
  std::uint64_t state_hash_ = 0;
};

}  // namespace tarn::server
