#include "server/rocksdb_checkpoint_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "core/crc32c.h"
#include "core/file.h"
#include "core/manifest.h"
#include "server/checkpoint_format.h"

namespace tarn::server {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kRowsPerBatch = 1024;

rocksdb::Options FileOptions() {
  rocksdb::BlockBasedTableOptions table;
  table.block_size = 64 << 10;
  table.format_version = 5;
  rocksdb::Options options;
  options.compression = rocksdb::kNoCompression;  // floats of trained rows do not shrink
  options.use_fsync = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// RocksDB's messages name the path on most errors only.
Error RocksDbError(const std::string& path, const char* what, const rocksdb::Status& status) {
  const ErrorCode code = status.IsCorruption() ? ErrorCode::kCorrupt : ErrorCode::kIo;
  return {code, fmt::format("{}: cannot {}: {}", path, what, status.ToString())};
}

// Size and checksum of a file as it lies on disk.
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};
Expected<FileSum> SumFile(const std::string& path, bool sync) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::unexpected(SystemError(path, "open", errno));
  std::vector<std::byte> piece(kReadBytes);
  FileSum sum;
  ssize_t n = 0;
  while ((n = ::read(fd, piece.data(), piece.size())) > 0) {
    sum.bytes += static_cast<std::uint64_t>(n);
    sum.crc32c = Crc32c(std::span<const std::byte>(piece.data(), static_cast<std::size_t>(n)), sum.crc32c);
  }
  int failure = n < 0 ? errno : 0;
  if (failure == 0 && sync && ::fsync(fd) != 0) failure = errno;
  ::close(fd);
  if (failure != 0) return std::unexpected(SystemError(path, "read or sync", failure));
  return sum;
}

Status PutRows(rocksdb::SstFileWriter& file, const std::string& path, const TableRows& table,
               const PartitionRows& partition) {
  const std::size_t row_bytes = table.row_floats * sizeof(float);
  for (const std::uint32_t row : KeyOrder(partition)) {
    const auto key = EncodeCheckpointKey({table.spec.id, partition.partition, partition.keys[row]});
    const char* floats = reinterpret_cast<const char*>(partition.rows.data() + std::size_t{row} * table.row_floats);
    const auto status = file.Put(rocksdb::Slice(key.data(), key.size()), rocksdb::Slice(floats, row_bytes));
    if (!status.ok()) return std::unexpected(RocksDbError(path, "write", status));
  }
  return {};
}

Status WriteFile(Snapshot& snapshot, const std::string& path) {
  rocksdb::SstFileWriter file(rocksdb::EnvOptions(), FileOptions());
  if (auto status = file.Open(path); !status.ok()) return std::unexpected(RocksDbError(path, "create", status));
  std::ranges::sort(snapshot.tables, {}, [](const TableRows& table) { return table.spec.id; });
  for (TableRows& table : snapshot.tables) {
    std::ranges::sort(table.partitions, {}, &PartitionRows::partition);
    for (const PartitionRows& partition : table.partitions) TARN_RETURN_IF_ERROR(PutRows(file, path, table, partition));
  }
  if (auto status = file.Finish(); !status.ok()) return std::unexpected(RocksDbError(path, "write", status));
  return {};
}

Status WriteSnapshot(Snapshot& snapshot, const std::string& directory, std::vector<CheckpointFile>* files) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create: {}", directory, failure.message()));
  const std::uint64_t rows = RowCount(snapshot.tables);
  if (rows == 0) return {};
  const std::string name = CheckpointFileName(snapshot.shard);
  const std::string path = directory + "/" + name;
  TARN_RETURN_IF_ERROR(WriteFile(snapshot, path));
  const auto sum = SumFile(path, true);
  if (!sum) return std::unexpected(sum.error());
  files->push_back({name, sum->bytes, sum->crc32c, rows});
  return {};
}

Status VerifyFile(const std::string& path, const CheckpointFile& file) {
  const auto sum = SumFile(path, false);
  if (!sum) return std::unexpected(sum.error());
  if (sum->bytes != file.bytes)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: {} bytes, expected {}", path, sum->bytes, file.bytes));
  if (sum->crc32c != file.crc32c)
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: damaged: its CRC-32C is {:08x}, expected {:08x}", path, sum->crc32c, file.crc32c));
  return {};
}

// Reads one file and hands its rows on in batches of one table.
class FileLoader {
 public:
  FileLoader(const Manifest& manifest, RowSink& sink) : sink_(sink) {
    for (const TableSpec& spec : manifest.tables) tables_[spec.id] = &spec;
  }

  Status Load(const std::string& path) {
    rocksdb::SstFileReader file(FileOptions());
    if (auto status = file.Open(path); !status.ok()) return std::unexpected(RocksDbError(path, "read", status));
    rocksdb::ReadOptions read;
    read.verify_checksums = true;
    read.readahead_size = kReadBytes;
    const std::unique_ptr<rocksdb::Iterator> it(file.NewIterator(read));
    for (it->SeekToFirst(); it->Valid(); it->Next()) TARN_RETURN_IF_ERROR(Take(path, it->key(), it->value()));
    if (!it->status().ok()) return std::unexpected(RocksDbError(path, "read", it->status()));
    return Flush();
  }

 private:
  Status Take(const std::string& path, const rocksdb::Slice& key_bytes, const rocksdb::Slice& row) {
    if (key_bytes.size() != CheckpointKey::kBytes)
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: a key of {} bytes", path, key_bytes.size()));
    const CheckpointKey key = DecodeCheckpointKey({key_bytes.data(), key_bytes.size()});
    if (spec_ == nullptr || spec_->id != key.table) {
      TARN_RETURN_IF_ERROR(Flush());
      const auto it = tables_.find(key.table);
      if (it == tables_.end())
        return Fail(ErrorCode::kCorrupt,
                    fmt::format("{}: rows of table {}, which MANIFEST has not", path, key.table.value));
      spec_ = it->second;
      row_floats_ = spec_->dim + SlotFloats(spec_->optimizer.kind, spec_->dim);
      TARN_RETURN_IF_ERROR(sink_.OnTable(*spec_));
    }
    if (row.size() != row_floats_ * sizeof(float))
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: a row of {} bytes in table '{}', expected {}", path, row.size(),
                                                   spec_->name, row_floats_ * sizeof(float)));
    keys_.push_back(key.key);
    rows_.resize(rows_.size() + row_floats_);
    std::memcpy(rows_.data() + rows_.size() - row_floats_, row.data(), row.size());
    return keys_.size() < kRowsPerBatch ? Status{} : Flush();
  }

  Status Flush() {
    if (keys_.empty()) return {};
    Status status = sink_.OnRows(keys_, rows_);
    keys_.clear();
    rows_.clear();
    return status;
  }

  RowSink& sink_;
  std::map<TableId, const TableSpec*> tables_;
  const TableSpec* spec_ = nullptr;  // of the batch at hand
  std::size_t row_floats_ = 0;
  std::vector<Key> keys_;
  std::vector<float> rows_;
};

}  // namespace

CheckpointPart WriteCheckpointPart(Snapshot snapshot, const std::string& directory) {
  CheckpointPart part = PartOf(snapshot);
  if (auto status = WriteSnapshot(snapshot, directory, &part.files); !status) {
    part.code = status.error().code;
    part.message = status.error().message;
    part.files.clear();
  }
  return part;
}

RocksDbCheckpointStore::RocksDbCheckpointStore(std::function<void()> wake)
    : wake_(std::move(wake)), thread_([this] { WriteJobs(); }) {
  pthread_setname_np(thread_.native_handle(), "checkpoint");
}

RocksDbCheckpointStore::~RocksDbCheckpointStore() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RocksDbCheckpointStore::Write(Snapshot snapshot, std::string directory) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(snapshot), std::move(directory)});
  }
  changed_.notify_all();
}

void RocksDbCheckpointStore::WriteJobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    CheckpointPart part = WriteCheckpointPart(std::move(job.snapshot), job.directory);
    lock.lock();
    written_.push_back(std::move(part));
    wake_();
  }
}

std::vector<CheckpointPart> RocksDbCheckpointStore::TakeWritten() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

Status RocksDbCheckpointStore::Load(const std::string& directory, RowSink& sink) {
  const auto manifest = ReadManifest(directory);
  if (!manifest) return std::unexpected(manifest.error());
  for (const TableSpec& spec : manifest->tables) TARN_RETURN_IF_ERROR(sink.OnTable(spec));
  for (const CheckpointFile& file : manifest->files)
    TARN_RETURN_IF_ERROR(VerifyFile(directory + "/" + file.name, file));
  for (const CheckpointFile& file : manifest->files)
    TARN_RETURN_IF_ERROR(FileLoader(*manifest, sink).Load(directory + "/" + file.name));
  return {};
}

}  // namespace tarn::server
