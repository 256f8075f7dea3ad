#include "server/rocksdb_checkpoint_writer.h"

#include <fmt/format.h>
#include <rocksdb/sst_file_writer.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "server/checkpoint_format.h"
#include "server/rocksdb_options.h"

namespace tarn::server {

namespace {

namespace fs = std::filesystem;

struct RowAt {
  Key key;
  const std::uint32_t* words;
};

// The rows of all chunks, in order of key.
std::vector<RowAt> InOrder(const std::vector<PartitionRows>& chunks, std::uint32_t row_words) {
  std::vector<RowAt> order;
  for (const PartitionRows& chunk : chunks)
    for (std::size_t i = 0; i < chunk.keys.size(); ++i)
      order.push_back({chunk.keys[i], chunk.rows.data() + i * row_words});
  std::ranges::sort(order, {}, &RowAt::key);
  return order;
}

}  // namespace

RocksDbCheckpointWriter::RocksDbCheckpointWriter(Snapshot head, std::string directory)
    : head_(std::move(head)), directory_(std::move(directory)) {}
RocksDbCheckpointWriter::~RocksDbCheckpointWriter() = default;

std::string RocksDbCheckpointWriter::path() const { return directory_ + "/" + CheckpointFileName(head_.shard); }

Status RocksDbCheckpointWriter::Put(CutRows chunk) {
  if (!chunks_.empty() && (table_->spec.id != chunk.table || chunks_.back().partition != chunk.rows.partition))
    TARN_RETURN_IF_ERROR(WritePartition());
  if (table_ == nullptr || table_->spec.id != chunk.table) {
    const auto table = std::ranges::find(head_.tables, chunk.table, [](const TableRows& rows) { return rows.spec.id; });
    TARN_CHECK(table != head_.tables.end(), "rows of a table that is not in the head");
    table_ = &*table;
  }
  chunks_.push_back(std::move(chunk.rows));
  return {};
}

Status RocksDbCheckpointWriter::Open() {
  std::error_code failure;
  fs::create_directories(directory_, failure);
  if (failure) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create: {}", directory_, failure.message()));
  return {};
}

Status RocksDbCheckpointWriter::WritePartition() {
  if (chunks_.empty()) return {};
  if (!file_) {
    TARN_RETURN_IF_ERROR(Open());
    file_ = std::make_unique<rocksdb::SstFileWriter>(rocksdb::EnvOptions(), CheckpointFileOptions());
    if (auto status = file_->Open(path()); !status.ok()) return std::unexpected(RocksDbError(path(), "create", status));
  }
  const std::size_t row_bytes = table_->row_words * sizeof(std::uint32_t);
  for (const RowAt& row : InOrder(chunks_, table_->row_words)) {
    const auto key = EncodeCheckpointKey({table_->spec.id, chunks_.back().partition, row.key});
    const auto status = file_->Put(rocksdb::Slice(key.data(), key.size()),
                                   rocksdb::Slice(reinterpret_cast<const char*>(row.words), row_bytes));
    if (!status.ok()) return std::unexpected(RocksDbError(path(), "write", status));
  }
  for (const PartitionRows& chunk : chunks_) {
    rows_ += chunk.keys.size();
    state_hash_ += StateHash(table_->salt, table_->row_words, chunk);
  }
  chunks_.clear();
  return {};
}

Status RocksDbCheckpointWriter::Close(std::vector<CheckpointFile>* files) {
  TARN_RETURN_IF_ERROR(WritePartition());
  if (!file_) return Open();
  if (auto status = file_->Finish(); !status.ok()) return std::unexpected(RocksDbError(path(), "write", status));
  const auto sum = SumFile(path(), true);
  if (!sum) return std::unexpected(sum.error());
  files->push_back({CheckpointFileName(head_.shard), sum->bytes, sum->crc32c, rows_});
  return {};
}

CheckpointPart RocksDbCheckpointWriter::Finish() {
  CheckpointPart part{.id = head_.id, .max_clock = head_.max_clock};
  if (auto status = Close(&part.files); !status) return Failed(status.error());
  part.state_hash = state_hash_;
  return part;
}

CheckpointPart RocksDbCheckpointWriter::Failed(const Error& error) const {
  return {.id = head_.id, .code = error.code, .message = error.message, .max_clock = head_.max_clock};
}

void RocksDbCheckpointWriter::Abandon() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  fs::remove(path(), ignored);
}

}  // namespace tarn::server
