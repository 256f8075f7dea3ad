#include "server/rocksdb_checkpoint_reader.h"

#include <fmt/format.h>
#include <rocksdb/iterator.h>
#include <rocksdb/sst_file_reader.h>

#include <cstring>
#include <memory>
#include <vector>

#include "core/manifest.h"
#include "core/row_layout.h"
#include "server/checkpoint_format.h"
#include "server/rocksdb_options.h"

namespace tarn::server {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kRowsPerBatch = 1024;

// Partitions that are neighbours, both ends included: one range of keys a table.
struct Run {
  PartitionId first, last;
};

std::vector<Run> WantedRuns(const RowSink& sink, std::uint32_t partition_bits) {
  std::vector<Run> runs;
  for (std::uint32_t p = 0; p < 1u << partition_bits; ++p) {
    const PartitionId partition(p);
    if (!sink.Wants(partition, partition_bits)) continue;
    if (!runs.empty() && runs.back().last.value + 1 == p) {
      runs.back().last = partition;
    } else {
      runs.push_back({partition, partition});
    }
  }
  return runs;
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

// One file, of which the rows of some partitions are wanted.
class FileReader {
 public:
  FileReader(const Manifest& manifest, const std::vector<Run>& runs, std::string path)
      : manifest_(manifest), runs_(runs), path_(std::move(path)), file_(CheckpointFileOptions()) {}

  // Whether it may hold wanted rows. An error: it cannot be told.
  Expected<bool> HasWanted() {
    TARN_RETURN_IF_ERROR(Open());
    for (const TableSpec& spec : manifest_.tables)
      for (const Run& run : runs_) {
        Seek(spec.id, run);
        if (!it_->status().ok()) return std::unexpected(RocksDbError(path_, "read", it_->status()));
        if (IsIn(spec.id, run)) return true;
      }
    return false;
  }

  Status Read(RowSink& sink) {
    if (!it_) TARN_RETURN_IF_ERROR(Open());
    for (const TableSpec& spec : manifest_.tables) {
      row_words_ = RowWords(spec);
      TARN_RETURN_IF_ERROR(sink.OnTable(spec));
      for (const Run& run : runs_) {
        for (Seek(spec.id, run); IsIn(spec.id, run); it_->Next()) TARN_RETURN_IF_ERROR(Take(spec, sink));
        if (!it_->status().ok()) return std::unexpected(RocksDbError(path_, "read", it_->status()));
      }
      TARN_RETURN_IF_ERROR(Flush(sink));
    }
    return {};
  }

 private:
  Status Open() {
    if (auto status = file_.Open(path_); !status.ok()) return std::unexpected(RocksDbError(path_, "read", status));
    rocksdb::ReadOptions read;
    read.verify_checksums = true;
    read.readahead_size = kReadBytes;
    it_.reset(file_.NewIterator(read));
    return {};
  }

  void Seek(TableId table, const Run& run) {
    const auto key = EncodeCheckpointKey({table, run.first, 0});
    it_->Seek(rocksdb::Slice(key.data(), key.size()));
  }

  // Whether the iterator stands in the run.
  bool IsIn(TableId table, const Run& run) const {
    if (!it_->Valid()) return false;
    if (it_->key().size() != CheckpointKey::kBytes) return true;  // Take refuses it
    const CheckpointKey key = DecodeCheckpointKey({it_->key().data(), it_->key().size()});
    return key.table == table && key.partition >= run.first && key.partition <= run.last;
  }

  Status Take(const TableSpec& spec, RowSink& sink) {
    const rocksdb::Slice key = it_->key(), row = it_->value();
    if (key.size() != CheckpointKey::kBytes)
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: a key of {} bytes", path_, key.size()));
    if (row.size() != row_words_ * sizeof(std::uint32_t))
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: a row of {} bytes in table '{}', expected {}", path_,
                                                   row.size(), spec.name, row_words_ * sizeof(std::uint32_t)));
    keys_.push_back(DecodeCheckpointKey({key.data(), key.size()}).key);
    rows_.resize(rows_.size() + row_words_);
    std::memcpy(rows_.data() + rows_.size() - row_words_, row.data(), row.size());
    return keys_.size() < kRowsPerBatch ? Status{} : Flush(sink);
  }

  Status Flush(RowSink& sink) {
    if (keys_.empty()) return {};
    Status status = sink.OnRows(keys_, rows_);
    keys_.clear();
    rows_.clear();
    return status;
  }

  const Manifest& manifest_;
  const std::vector<Run>& runs_;
  std::string path_;
  rocksdb::SstFileReader file_;
  std::unique_ptr<rocksdb::Iterator> it_;  // behind its file
  std::size_t row_words_ = 0;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> rows_;
};

}  // namespace

Status ReadCheckpoint(const std::string& directory, RowSink& sink) {
  const auto manifest = ReadManifest(directory);
  if (!manifest) return std::unexpected(manifest.error());
  for (const TableSpec& spec : manifest->tables) TARN_RETURN_IF_ERROR(sink.OnTable(spec));
  const std::vector<Run> runs = WantedRuns(sink, manifest->partition_bits);
  std::vector<std::string> wanted;
  for (const CheckpointFile& file : manifest->files) {
    const std::string path = directory + "/" + file.name;
    const auto has = FileReader(*manifest, runs, path).HasWanted();
    if (has && !*has) continue;
    TARN_RETURN_IF_ERROR(VerifyFile(path, file));
    if (!has) return std::unexpected(has.error());  // whole, and yet it cannot be read
    wanted.push_back(path);
  }
  for (const std::string& path : wanted) TARN_RETURN_IF_ERROR(FileReader(*manifest, runs, path).Read(sink));
  return {};
}

}  // namespace tarn::server
