// The ColdStore of a real shard: RocksDB, without its log, memtables and compactions. A segment is one SST file, built
// and ingested on a strand of a pool; since segments never overlap, RocksDB never has to merge any. A page is one
// value, `table | segment | page` its key, and fills one block, whose checksum every read verifies. Fetches are split
// over a few threads, each part with its own sorted MultiGet. Only server/rocksdb_* and server/tier/rocksdb_* include
// RocksDB.
//
//   auto store = RocksDbColdStore::Open(&pool, {.directory = run + "/tier/shard-0"}, [&] { transport.Wake(); });
//
// What RocksDB keeps in memory are the indices of the segments, some KiB each and 16 bytes a page, and nothing else
// that grows: pages are not cached (the operating system does that with memory that it can spare). Nothing is synced:
// the directory is scratch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/disk_pool.h"
#include "server/tier/cold_store.h"

namespace rocksdb {
class DB;
class FileSystem;
}  // namespace rocksdb

namespace tarn::server {

struct RocksDbColdStoreOptions {
  std::string directory;
  std::uint32_t readers = 4;                         // threads that fetch
  int open_files_max = -1;                           // segments open at one time, at least 64; -1: all there are
  std::shared_ptr<rocksdb::FileSystem> file_system;  // null: the system's
};

class RocksDbColdStore : public ColdStore {
 public:
  // Empties the directory and holds it until the end. kAlreadyExists if it holds anything that is no tier's, kIo if it
  // is another process's now, or cannot be written. `wake` is called from other threads when there are events. The pool
  // outlives the store.
  static Expected<std::unique_ptr<RocksDbColdStore>> Open(DiskPool* pool, RocksDbColdStoreOptions options,
                                                          std::function<void()> wake);
  // Removes what it holds.
  ~RocksDbColdStore() override;

  void Write(SegmentId segment, std::shared_ptr<const SegmentBytes> bytes) override;
  void Remove(SegmentId segment) override;
  Status Read(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) override;
  void Fetch(std::vector<RecordAt> records, std::size_t record_bytes) override;
  std::vector<ColdEvent> TakeEvents() override;
  void WaitForWrite() override;
  std::string where() const override { return options_.directory; }
  std::size_t memory_bytes() const override { return memory_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t disk_bytes() const override { return disk_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Files;  // RocksDB's side
  struct WriteJob {
    SegmentId segment;
    std::shared_ptr<const SegmentBytes> bytes;
  };
  struct RemoveJob {
    SegmentId segment;
  };
  using Job = std::variant<WriteJob, RemoveJob>;
  // One fetch, cut into parts that different threads read.
  struct FetchJob {
    std::vector<RecordAt> records;
    std::size_t record_bytes = 0;
    std::vector<std::byte> out;
    std::size_t next = 0;  // record of the next part to begin
    std::size_t parts_left = 0;
    Error error{ErrorCode::kOk, {}};
  };

  RocksDbColdStore(DiskPool* pool, RocksDbColdStoreOptions options, std::function<void()> wake);
  void DoAndReport(const Job& job);
  ColdEvent Do(const Job& job);
  void ReadParts();
  void ReportFetches();

  RocksDbColdStoreOptions options_;
  std::function<void()> wake_;
  std::unique_ptr<Files> files_;
  std::atomic<std::size_t> memory_bytes_{0};
  std::atomic<std::uint64_t> disk_bytes_{0};

  std::mutex mutex_;  // guards all below
  std::condition_variable written_changed_;
  std::deque<std::shared_ptr<FetchJob>> fetches_;  // in the order in which they end
  std::vector<ColdEvent> events_;
  std::size_t writes_under_way_ = 0;
  std::size_t writes_ended_ = 0;  // or anything failed

  std::atomic<bool> closing_ = false;
  std::optional<DiskPool> readers_;
  DiskPool::Strand writes_;
};

}  // namespace tarn::server
