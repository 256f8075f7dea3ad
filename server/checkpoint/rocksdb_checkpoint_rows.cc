// Reads checkpoint files: merges their entries in order of key; of one key, the newest generation first.
#include <fmt/format.h>
#include <rocksdb/iterator.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <compare>
#include <cstring>
#include <utility>

#include "core/row_layout.h"
#include "server/checkpoint/checkpoint_format.h"
#include "server/checkpoint/checkpoint_rows.h"
#include "server/checkpoint/rocksdb_options.h"
#include "server/tier/rocksdb_error.h"

namespace tarn::server {

namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;
constexpr std::size_t kSeenPerBatch = 4096;

// One file, opened by its first Seek.
class Source {
 public:
  Source(std::string path, const CheckpointFile* file, std::size_t generation)
      : path_(std::move(path)), file_(file), generation_(generation) {}

  const CheckpointFile& file() const { return *file_; }
  std::size_t generation() const { return generation_; }
  const std::string& path() const { return path_; }
  const CheckpointKey& key() const { return key_; }
  rocksdb::Slice value() const { return it_->value(); }
  void Close() {
    it_.reset();
    reader_.reset();
  }

  // Moves to the first entry at or after `key`. False: the table has none up to the end of partition `last`.
  Expected<bool> Seek(const CheckpointKey& key, PartitionId last) {
    if (!it_) TARN_RETURN_IF_ERROR(Open());
    table_ = key.table;
    last_ = last;
    const auto bytes = EncodeCheckpointKey(key);
    it_->Seek(rocksdb::Slice(bytes.data(), bytes.size()));
    return ReadKey();
  }
  // Moves to the next entry. False as for Seek.
  Expected<bool> Next() {
    it_->Next();
    return ReadKey();
  }

 private:
  Status Open() {
    reader_ = std::make_unique<rocksdb::SstFileReader>(CheckpointFileOptions());
    if (auto status = reader_->Open(path_); !status.ok()) return std::unexpected(RocksDbError(path_, "read", status));
    rocksdb::ReadOptions read;
    read.verify_checksums = true;
    read.readahead_size = kReadBytes;
    read.fill_cache = false;
    it_.reset(reader_->NewIterator(read));
    return {};
  }

  // Decodes the current key. False: it is beyond the range of Seek.
  Expected<bool> ReadKey() {
    if (!it_->Valid()) {
      if (!it_->status().ok()) return std::unexpected(RocksDbError(path_, "read", it_->status()));
      return false;
    }
    if (it_->key().size() != CheckpointKey::kBytes)
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: a key of {} bytes, expected {}", path_, it_->key().size(), CheckpointKey::kBytes));
    key_ = DecodeCheckpointKey({it_->key().data(), it_->key().size()});
    return key_.table == table_ && key_.partition <= last_;
  }

  std::string path_;
  const CheckpointFile* file_;
  std::size_t generation_;
  std::unique_ptr<rocksdb::SstFileReader> reader_;
  std::unique_ptr<rocksdb::Iterator> it_;  // must be destroyed before reader_
  TableId table_;
  PartitionId last_;
  CheckpointKey key_;
};

class RocksDbCheckpointRows : public CheckpointRows {
 public:
  RocksDbCheckpointRows(Manifest manifest, const std::string& directory, CheckpointRowsOptions options)
      : manifest_(std::move(manifest)), options_(std::move(options)) {
    for (std::size_t g = options_.first_generation; g < manifest_.generations.size(); ++g)
      for (const CheckpointFile& file : manifest_.generations[g].files) {
        Source source(directory + "/" + file.name, &file, g);
        if (file.seen == 0)
          sources_.push_back(std::move(source));
        else if (g + 1 == manifest_.generations.size())  // counts of older generations are obsolete
          seen_.push_back(std::move(source));
      }
  }

  const Manifest& manifest() const override { return manifest_; }

  Status Seek(const TableSpec& table, PartitionRun run, Key from) override {
    row_words_ = RowWords(table);
    table_ = &table;
    heap_.clear();
    for (Source& source : sources_) {
      if (!MayHold(source.file(), run)) {
        source.Close();
        continue;
      }
      const auto found = source.Seek({table.id, run.first, from}, run.last);
      if (!found) return std::unexpected(found.error());
      if (*found) heap_.push_back(&source);
    }
    std::ranges::make_heap(heap_, IsLater);
    return {};
  }

  Expected<bool> Next(StoredRow* row) override {
    while (!heap_.empty()) {
      // Of one key, the first entry of the heap is that of the newest generation. Skip the older ones.
      const CheckpointKey key = heap_.front()->key();
      TARN_RETURN_IF_ERROR(CopyFirst(key, row));
      do {
        TARN_RETURN_IF_ERROR(ReportEntry(*heap_.front()));
        if (auto status = Advance(); !status) return std::unexpected(status.error());
      } while (!heap_.empty() && heap_.front()->key().partition == key.partition &&
               heap_.front()->key().key == key.key);
      if (!row->words.empty() || options_.first_generation > 0) return true;
    }
    return false;
  }

  Status ReadSeen(const TableSpec& table, PartitionRun run,
                  const std::function<Status(std::span<const Seen>)>& take) override {
    std::vector<Seen> batch;
    for (Source& source : seen_) {
      if (!MayHold(source.file(), run)) continue;
      auto more = source.Seek({table.id, run.first, 0}, run.last);
      for (; more && *more; more = source.Next()) {
        Seen& seen = batch.emplace_back(source.key().key, 0);
        if (source.value().size() != sizeof seen.second)
          return Fail(ErrorCode::kCorrupt,
                      fmt::format("{}: the count of key {} has {} bytes, expected {}", source.path(), seen.first,
                                  source.value().size(), sizeof seen.second));
        std::memcpy(&seen.second, source.value().data(), sizeof seen.second);
        TARN_RETURN_IF_ERROR(ReportEntry(source));
        if (batch.size() < kSeenPerBatch) continue;
        TARN_RETURN_IF_ERROR(take(batch));
        batch.clear();
      }
      if (!more) return std::unexpected(more.error());
      source.Close();
    }
    return batch.empty() ? Status{} : take(batch);
  }

  Status ReadStates(PartitionRun run,
                    const std::function<Status(TableId, PartitionId, const FragmentState&)>& take) override {
    for (Source& source : sources_) {
      if (source.generation() + 1 != manifest_.generations.size() || !MayHold(source.file(), run)) continue;
      auto more = source.Seek({kStateTable, run.first, 0}, run.last);
      for (; more && *more; more = source.Next()) {
        const rocksdb::Slice value = source.value();
        FragmentState state;
        if (value.size() < sizeof state.version || value.size() % sizeof(std::uint32_t) != 0)
          return Fail(
              ErrorCode::kCorrupt,
              fmt::format("{}: the state of table {} in partition {} has {} bytes, expected {} plus a multiple of 4",
                          source.path(), source.key().key, source.key().partition.value, value.size(),
                          sizeof state.version));
        std::memcpy(&state.version.value, value.data(), sizeof state.version);
        state.words.resize((value.size() - sizeof state.version) / sizeof(std::uint32_t));
        if (!state.words.empty())
          std::memcpy(state.words.data(), value.data() + sizeof state.version, value.size() - sizeof state.version);
        TARN_RETURN_IF_ERROR(
            take(TableId(static_cast<std::uint32_t>(source.key().key)), source.key().partition, state));
      }
      if (!more) return std::unexpected(more.error());
      source.Close();
    }
    return {};
  }

 private:
  // The order of the heap: ascending keys; of one key, the newest generation first.
  static bool IsLater(const Source* a, const Source* b) {
    if (a->key().partition != b->key().partition) return a->key().partition > b->key().partition;
    if (a->key().key != b->key().key) return a->key().key > b->key().key;
    return a->generation() < b->generation();
  }

  Status ReportEntry(const Source& source) {
    if (!options_.on_entry) return {};
    const rocksdb::Slice value = source.value();
    entry_.resize(value.size() / sizeof(std::uint32_t));
    if (!entry_.empty()) std::memcpy(entry_.data(), value.data(), entry_.size() * sizeof(std::uint32_t));
    return options_.on_entry({&source.file(), source.generation(), source.key().partition, source.key().key, entry_});
  }

  // Copies the first entry of the heap, which has this key, to `row`. A row of the first generation must not be empty.
  Status CopyFirst(const CheckpointKey& key, StoredRow* row) {
    const Source& source = *heap_.front();
    const rocksdb::Slice value = source.value();
    if (value.size() != row_words_ * sizeof(std::uint32_t) && (!value.empty() || source.generation() == 0))
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: table '{}': the row of key {} has {} bytes, expected {}", source.path(),
                              table_->name, key.key, value.size(), row_words_ * sizeof(std::uint32_t)));
    words_.resize(value.size() / sizeof(std::uint32_t));
    if (!value.empty()) std::memcpy(words_.data(), value.data(), value.size());
    *row = {key.partition, key.key, words_, source.generation()};
    return {};
  }

  // Moves the first source of the heap to its next entry, or removes it from the heap.
  Status Advance() {
    std::ranges::pop_heap(heap_, IsLater);
    const auto more = heap_.back()->Next();
    if (!more) return std::unexpected(more.error());
    if (*more)
      std::ranges::push_heap(heap_, IsLater);
    else
      heap_.pop_back();
    return {};
  }

  Manifest manifest_;
  CheckpointRowsOptions options_;
  std::vector<Source> sources_, seen_;
  std::vector<Source*> heap_;
  const TableSpec* table_ = nullptr;
  std::size_t row_words_ = 0;
  std::vector<std::uint32_t> words_, entry_;  // record of the last row; words of the last entry reported
};

}  // namespace

Expected<std::unique_ptr<CheckpointRows>> OpenCheckpointRows(const std::string& directory,
                                                             CheckpointRowsOptions options) {
  auto manifest = ReadManifest(directory);
  if (!manifest) return std::unexpected(manifest.error());
  return std::make_unique<RocksDbCheckpointRows>(std::move(*manifest), directory, std::move(options));
}

}  // namespace tarn::server
