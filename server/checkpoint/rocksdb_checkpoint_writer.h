// Writes one shard's part of a checkpoint (server/checkpoint/checkpoint_format.h) while its rows arrive. The rows of a
// partition arrive unordered: the writer collects about `run_bytes_max` bytes of them, sorts them and writes them as
// one run; each run of a partition goes to another file. Blocks; one thread at a time.
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

  // Creates the directory and adds the shard's share of the base's files (LinkBaseFiles). After an error, here and in
  // Put, only Failed and Abandon may be called.
  Status Begin();
  // Adds rows, in order of table and partition.
  Status Put(CutRows chunk);
  // Writes the remaining rows and makes the files durable. Returns the report: the files, or the error as code and
  // message. `whole_hash`: as in CheckpointStore::Finish.
  CheckpointPart Finish(std::optional<std::uint64_t> whole_hash);
  // The report of a part that failed.
  CheckpointPart Failed(const Error& error) const;
  // Removes the files that the writer has created, but not those of the base.
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
  // Of the current partition.
  const TableRows* table_ = nullptr;
  PartitionId partition_;
  std::vector<PartitionRows> chunks_;
  std::size_t chunk_bytes_ = 0;
  std::size_t runs_ = 0;  // written; the next one goes to file `runs_`
  std::vector<Seen> seen_;

  // Of all partitions, written by Finish.
  std::map<std::pair<PartitionId, TableId>, FragmentState> states_;
  std::map<TableId, CheckpointTable> tables_;
  std::uint64_t state_hash_ = 0;
};

}  // namespace tarn::server
