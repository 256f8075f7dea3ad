// The ColdStore of a real shard: RocksDB without its log, memtables and compactions. A segment is one SST file, built
// and ingested on a strand of a pool. Segments never overlap, so RocksDB never merges them. A page is one value with
// the key `table | segment | page`; it fills one block, whose checksum is verified by every read. A fetch is split into
// parts, which several threads read, each with sorted MultiGets of at most 32 pages. In server/, only
// checkpoint/rocksdb_*, tier/rocksdb_* and tier/unsynced_files.h include RocksDB.
//
//   auto store = RocksDbColdStore::Open(&pool, {.directory = run + "/tier/shard-0"}, [&] { transport.Wake(); });
//
// RocksDB keeps only the indices of the segments in memory: some KiB per segment and 16 bytes per page. Pages are
// cached by the operating system alone. Nothing is synced, because the directory is temporary.
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
  std::uint32_t readers = 4;                         // threads for fetches
  int open_files_max = -1;                           // maximum number of open segments, at least 64; -1: all
  std::shared_ptr<rocksdb::FileSystem> file_system;  // null: that of the operating system
};

class RocksDbColdStore : public ColdStore {
 public:
  // Creates the directory if necessary, locks it and empties it. kAlreadyExists if it contains files that are not of a
  // tier; kIo if another process has locked it, or it cannot be written. `wake` is called on other threads when there
  // are events. The pool outlives the store.
  static Expected<std::unique_ptr<RocksDbColdStore>> Open(DiskPool* pool, RocksDbColdStoreOptions options,
                                                          std::function<void()> wake);
  // Removes the contents of the directory, except the marker file.
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
  struct Files;  // the objects of RocksDB
  struct WriteJob {
    SegmentId segment;
    std::shared_ptr<const SegmentBytes> bytes;
  };
  struct RemoveJob {
    SegmentId segment;
  };
  using Job = std::variant<WriteJob, RemoveJob>;
  // One fetch, split into parts that different threads read.
  struct FetchJob {
    std::vector<RecordAt> records;
    std::size_t record_bytes = 0;
    std::vector<std::byte> out;
    std::size_t next = 0;  // first record of the next part
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

  std::mutex mutex_;  // guards the members from here to writes_ended_
  std::condition_variable written_changed_;
  std::deque<std::shared_ptr<FetchJob>> fetches_;  // in the order in which they must end
  std::vector<ColdEvent> events_;
  std::size_t writes_in_progress_ = 0;
  std::size_t writes_ended_ = 0;  // also counts failed removals

  std::atomic<bool> closing_ = false;
  std::optional<DiskPool> readers_;
  DiskPool::Strand writes_;
};

}  // namespace tarn::server
