#include "server/checkpoint/rocksdb_checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "server/checkpoint/checkpoint_base.h"
#include "server/checkpoint/rocksdb_sorted_file.h"

namespace tarn::server {

namespace {

namespace fs = std::filesystem;

// After so many runs of one partition, the size of its runs doubles.
constexpr std::size_t kRunsPerSize = 512;

struct EntryAt {
  Key key;
  const std::uint32_t* words;  // null: removed
};

// Rows and removed keys of all chunks, in order of key.
std::vector<EntryAt> InOrder(const std::vector<PartitionRows>& chunks, std::uint32_t row_words) {
  std::vector<EntryAt> order;
  for (const PartitionRows& chunk : chunks) {
    for (std::size_t i = 0; i < chunk.keys.size(); ++i)
      order.push_back({chunk.keys[i], chunk.rows.data() + i * row_words});
    for (Key key : chunk.removed) order.push_back({key, nullptr});
  }
  // A key that is listed as removed twice, or is listed and has a row, is written once: with the row if it has one.
  std::ranges::sort(order, {}, [](const EntryAt& entry) { return std::pair(entry.key, entry.words == nullptr); });
  const auto repeated = std::ranges::unique(order, {}, &EntryAt::key);
  order.erase(repeated.begin(), repeated.end());
  return order;
}

std::size_t BytesOf(const PartitionRows& chunk) {
  return (chunk.keys.size() + chunk.removed.size()) * (sizeof(Key) + sizeof(EntryAt)) +
         chunk.rows.size() * sizeof(std::uint32_t);
}

}  // namespace

RocksDbCheckpointWriter::RocksDbCheckpointWriter(Snapshot head, std::string directory, std::size_t run_bytes_max)
    : head_(std::move(head)), directory_(std::move(directory)), run_bytes_max_(run_bytes_max) {
  for (const TableRows& table : head_.tables) tables_[table.spec.id].table = table.spec.id;
}
RocksDbCheckpointWriter::~RocksDbCheckpointWriter() = default;

Status RocksDbCheckpointWriter::Begin() {
  std::error_code failure;
  fs::create_directories(directory_, failure);
  if (failure) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create: {}", directory_, failure.message()));
  if (head_.base.value == 0) return {};
  return LinkBaseFiles({head_.base, head_.base_directory, head_.shard, head_.shards}, directory_);
}

Status RocksDbCheckpointWriter::Put(CutRows chunk) {
  if (table_ == nullptr || table_->spec.id != chunk.table || partition_ != chunk.rows.partition) {
    TARN_RETURN_IF_ERROR(EndPartition());
    const auto table = std::ranges::find(head_.tables, chunk.table, [](const TableRows& rows) { return rows.spec.id; });
    TARN_CHECK(table != head_.tables.end(), "rows of a table that is not in the head");
    table_ = &*table;
    partition_ = chunk.rows.partition;
  }
  state_hash_ += StateHash(table_->salt, table_->row_words, chunk.rows);
  seen_.insert(seen_.end(), chunk.rows.seen.begin(), chunk.rows.seen.end());
  if (chunk.rows.state) states_[{partition_, table_->spec.id}] = *std::move(chunk.rows.state);
  chunk_bytes_ += BytesOf(chunk.rows);
  chunks_.push_back(std::move(chunk.rows));
  // Runs grow because each run of a partition is in another file, and the number of files is limited.
  return chunk_bytes_ < run_bytes_max_ << (runs_ / kRunsPerSize) ? Status{} : WriteRun();
}

Expected<SortedFile*> RocksDbCheckpointWriter::File(std::size_t number) {
  if (number == files_.size()) {
    if (number + 1 >= limits::kCheckpointFilesMax)
      return Fail(ErrorCode::kTooLarge, fmt::format("{}: shard {} would need more than {} files", directory_,
                                                    head_.shard.value, limits::kCheckpointFilesMax));
    auto file = std::make_unique<SortedFile>(directory_, CheckpointFileName(head_.id, head_.shard, number));
    TARN_RETURN_IF_ERROR(file->Open());
    files_.push_back(std::move(file));
  }
  return files_[number].get();
}

Status RocksDbCheckpointWriter::WriteRun() {
  const std::vector<EntryAt> entries = InOrder(chunks_, table_->row_words);
  if (!entries.empty()) {
    const auto file = File(runs_++);
    if (!file) return std::unexpected(file.error());
    CheckpointTable& table = tables_[table_->spec.id];
    for (const EntryAt& entry : entries) {
      const std::span<const std::uint32_t> words(entry.words, entry.words == nullptr ? 0 : table_->row_words);
      TARN_RETURN_IF_ERROR((*file)->Put({table_->spec.id, partition_, entry.key}, std::as_bytes(words)));
      ++(words.empty() ? (*file)->description().removed : (*file)->description().rows);
      ++(words.empty() ? table.removed : table.rows);
    }
  }
  chunks_.clear();
  chunk_bytes_ = 0;
  return {};
}

Status RocksDbCheckpointWriter::WriteSeen() {
  if (seen_.empty()) return {};
  if (!seen_file_) {
    seen_file_ = std::make_unique<SortedFile>(directory_, SeenFileName(head_.id, head_.shard));
    TARN_RETURN_IF_ERROR(seen_file_->Open());
  }
  std::ranges::sort(seen_, {}, &Seen::first);
  for (const auto& [key, count] : seen_)
    TARN_RETURN_IF_ERROR(seen_file_->Put({table_->spec.id, partition_, key}, std::as_bytes(std::span(&count, 1))));
  seen_file_->description().seen += seen_.size();
  tables_[table_->spec.id].seen += seen_.size();
  seen_.clear();
  return {};
}

// Appends the states to the first file, after all rows.
Status RocksDbCheckpointWriter::WriteStates() {
  if (states_.empty()) return {};
  const auto file = File(0);
  if (!file) return std::unexpected(file.error());
  for (const auto& [at, state] : states_) {
    std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(state.version.value),
                                        static_cast<std::uint32_t>(state.version.value >> 32)};
    words.insert(words.end(), state.words.begin(), state.words.end());
    TARN_RETURN_IF_ERROR((*file)->Put({kStateTable, at.first, at.second.value}, std::as_bytes(std::span(words))));
  }
  return {};
}

Status RocksDbCheckpointWriter::EndPartition() {
  if (table_ == nullptr) return {};
  TARN_RETURN_IF_ERROR(WriteRun());
  TARN_RETURN_IF_ERROR(WriteSeen());
  runs_ = 0;
  return {};
}

Status RocksDbCheckpointWriter::CloseAll(std::vector<CheckpointFile>* files) {
  TARN_RETURN_IF_ERROR(EndPartition());
  TARN_RETURN_IF_ERROR(WriteStates());
  if (seen_file_) files_.push_back(std::move(seen_file_));
  for (const auto& file : files_) {
    auto closed = file->Close();
    if (!closed) return std::unexpected(closed.error());
    files->push_back(std::move(*closed));
  }
  return {};
}

CheckpointPart RocksDbCheckpointWriter::Finish(std::optional<std::uint64_t> whole_hash) {
  CheckpointPart part{.id = head_.id, .max_clock = head_.max_clock};
  if (auto status = CloseAll(&part.files); !status) return Failed(status.error());
  part.state_hash = state_hash_;
  part.whole_hash = head_.base.value == 0 ? state_hash_ : whole_hash;
  for (const TableRows& table : head_.tables) {
    tables_[table.spec.id].state_rows = table.state_rows;
    part.tables.push_back(tables_[table.spec.id]);
  }
  return part;
}

CheckpointPart RocksDbCheckpointWriter::Failed(const Error& error) const {
  return {.id = head_.id, .code = error.code, .message = error.message, .max_clock = head_.max_clock};
}

void RocksDbCheckpointWriter::Abandon() {
  for (const auto& file : files_) file->Remove();
  if (seen_file_) seen_file_->Remove();
}

}  // namespace tarn::server
