#include "server/rocksdb_checkpoint_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <rocksdb/sst_file_writer.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "core/crc32c.h"
#include "core/file.h"
#include "server/checkpoint_format.h"
#include "server/rocksdb_checkpoint_reader.h"
#include "server/rocksdb_options.h"

namespace tarn::server {

namespace {
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
}

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

namespace {

namespace fs = std::filesystem;

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
  rocksdb::SstFileWriter file(rocksdb::EnvOptions(), CheckpointFileOptions());
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
  return ReadCheckpoint(directory, sink);
}

}  // namespace tarn::server
