#include "server/checkpoint/rocksdb_sorted_file.h"

#include <fcntl.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/sst_file_writer.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/descriptor.h"
#include "server/checkpoint/file_sum.h"
#include "server/checkpoint/rocksdb_options.h"
#include "server/tier/rocksdb_error.h"

namespace tarn::server {

namespace {

// Tries a write, because some file systems open a file with O_DIRECT but reject writes to it.
bool CanWriteDirectly(const std::string& directory) {
  constexpr std::size_t kBlockBytes = 4096;
  const Descriptor file(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600));
  if (file.get() < 0) return false;
  alignas(kBlockBytes) const std::byte block[kBlockBytes] = {};
  return ::pwrite(file.get(), block, kBlockBytes, 0) == ssize_t{kBlockBytes};
}

// RocksDB returns the CRC-32C as four bytes, big-endian.
std::uint32_t SumOf(const std::string& bytes) {
  std::uint32_t sum = 0;
  for (const char byte : bytes) sum = sum << 8 | static_cast<unsigned char>(byte);
  return sum;
}

}  // namespace

SortedFile::SortedFile(std::string directory, std::string name) : directory_(std::move(directory)) {
  description_.name = std::move(name);
}
SortedFile::~SortedFile() = default;

// Bypasses the page cache if the file system supports it. Otherwise gigabytes that are not read soon would evict pages
// in use. In a virtual machine whose hypervisor reclaims freed memory, look-ups of rows would also stall.
Status SortedFile::Open() {
  if (CanWriteDirectly(directory_) && OpenWriter(true)) return {};
  return OpenWriter(false);
}

Status SortedFile::OpenWriter(bool direct) {
  rocksdb::EnvOptions files;
  files.use_direct_writes = direct;
  rocksdb::Options options = CheckpointFileOptions();
  options.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
  writer_ = std::make_unique<rocksdb::SstFileWriter>(files, options);
  if (auto status = writer_->Open(path()); !status.ok()) return std::unexpected(RocksDbError(path(), "create", status));
  return {};
}

Status SortedFile::Put(const CheckpointKey& key, std::span<const std::byte> value) {
  const auto bytes = EncodeCheckpointKey(key);
  const auto status = writer_->Put(rocksdb::Slice(bytes.data(), bytes.size()),
                                   rocksdb::Slice(reinterpret_cast<const char*>(value.data()), value.size()));
  if (!status.ok()) return std::unexpected(RocksDbError(path(), "write", status));
  const bool first = description_.last < description_.first;
  description_.first = first ? key.partition : std::min(description_.first, key.partition);
  description_.last = first ? key.partition : std::max(description_.last, key.partition);
  return {};
}

Expected<CheckpointFile> SortedFile::Close() {
  rocksdb::ExternalSstFileInfo info;
  if (auto status = writer_->Finish(&info); !status.ok()) return std::unexpected(RocksDbError(path(), "write", status));
  const auto sum = SumFile(path(), true);
  if (!sum) return std::unexpected(sum.error());
  if (const std::uint32_t written = SumOf(info.file_checksum); sum->crc32c != written)
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: damaged while it was written: the CRC-32C of what is read back is "
                            "{:08x}, expected {:08x}",
                            path(), sum->crc32c, written));
  description_.bytes = sum->bytes;
  description_.crc32c = sum->crc32c;
  return description_;
}

void SortedFile::Remove() {
  writer_.reset();
  std::error_code ignored;
  std::filesystem::remove(path(), ignored);
}

}  // namespace tarn::server
