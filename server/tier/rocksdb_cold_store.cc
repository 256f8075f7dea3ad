#include "server/tier/rocksdb_cold_store.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_writer.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "core/file.h"
#include "server/exhaustion.h"
#include "server/tier/rocksdb_error.h"
#include "server/tier/unsynced_files.h"

namespace tarn::server {

namespace {

namespace fs = std::filesystem;

// Maximum number of records of a part of a fetch: enough for several MultiGets.
constexpr std::size_t kPartRecords = 128;
// Maximum number of pages of a MultiGet: the number of keys that RocksDB looks up together.
constexpr std::size_t kMultiGetPages = 32;
constexpr std::size_t kBlockBytes = 4096;
constexpr const char* kMarker = "TARN_TIER";
// RocksDB needs some open files besides the segments.
constexpr int kOpenFilesMin = 64;
// RocksDB's memory for a file and for a page of it, measured with segments of 92 and of 1,000 pages.
constexpr std::size_t kFileMemoryBytes = 6144, kPageMemoryBytes = 16;

// Big-endian, so that a segment is one range with its pages in order.
using PageKey = std::array<char, 12>;
PageKey KeyOf(SegmentId segment, std::uint32_t page) {
  PageKey key;
  const std::uint32_t words[3] = {__builtin_bswap32(segment.table), __builtin_bswap32(segment.number),
                                  __builtin_bswap32(page)};
  std::memcpy(key.data(), words, sizeof(words));
  return key;
}
rocksdb::Slice SliceOf(const PageKey& key) { return {key.data(), key.size()}; }

rocksdb::Options TierOptions(rocksdb::Env* env, int open_files_max) {
  rocksdb::BlockBasedTableOptions table;
  table.block_size = kBlockBytes;
  table.block_align = true;
  table.format_version = 5;
  table.no_block_cache = true;
  table.index_block_restart_interval = 16;
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.disable_auto_compactions = true;
  options.force_consistency_checks = false;  // they would check all files whenever one is added or removed
  options.write_buffer_size = 64 << 10;
  options.max_open_files = open_files_max < 0 ? -1 : std::max(open_files_max, kOpenFilesMin);
  options.info_log_level = rocksdb::ERROR_LEVEL;
  options.keep_log_file_num = 1;
  options.max_manifest_file_size = 4 << 20;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.skip_stats_update_on_db_open = true;
  return options;
}

// The operating system caches pages, RocksDB does not.
rocksdb::ReadOptions PageReads() {
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = false;
  return options;
}

ColdEvent Failed(const Error& error) {
  return {.kind = ColdEvent::Kind::kFailed, .segment = {}, .records = {}, .error = error};
}

}  // namespace

struct RocksDbColdStore::Files {
  std::optional<FileLock> lock;  // destroyed last
  std::unique_ptr<rocksdb::Env> env;
  rocksdb::Options options;
  std::unique_ptr<rocksdb::DB> db;

  // Sizes of the segments, used only on the strand. Counted here, because RocksDB's properties iterate over all files.
  struct Size {
    std::uint64_t file_bytes = 0;
    std::size_t memory_bytes = 0;
  };
  std::map<SegmentId, Size> sizes;
  Size all;

  Status LockDirectory(const std::string& directory);
  Status ClearDirectory(const std::string& directory) const;
  Status Open(const RocksDbColdStoreOptions& options);
  Status Write(const std::string& directory, SegmentId segment, const SegmentBytes& bytes);
  Status Remove(const std::string& directory, SegmentId segment);
  Status Read(const std::string& directory, std::span<const RecordAt> records, std::size_t record_bytes,
              std::byte* out);
  Status ReadPages(const std::string& directory, std::span<const RecordAt> records, std::size_t pages,
                   std::size_t record_bytes, std::byte* out);
};

// The marker file shows that the directory belongs to a tier; its lock shows that a process uses it.
Status RocksDbColdStore::Files::LockDirectory(const std::string& directory) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create: {}", directory, failure.message()));
  const std::string marker = directory + "/" + kMarker;
  if (!fs::exists(marker, failure) && !fs::is_empty(directory, failure))
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("{}: contains files but no {}, so it is not a tier's directory and is not emptied; name "
                            "another directory, or an empty one",
                            directory, kMarker));
  auto taken =
      FileLock::Take(marker, "another process uses this tier: is a server of this run still running?", kLockTimeout);
  if (!taken) return Fail(ErrorCode::kIo, taken.error().message);
  lock.emplace(*std::move(taken));
  return {};
}

Status RocksDbColdStore::Files::ClearDirectory(const std::string& directory) const {
  std::error_code failure;
  for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().filename() == kMarker) continue;
    fs::remove_all(it->path(), failure);
    if (failure) break;
  }
  if (failure) return Fail(ErrorCode::kIo, fmt::format("{}: cannot empty: {}", directory, failure.message()));
  return {};
}

Status RocksDbColdStore::Files::Open(const RocksDbColdStoreOptions& given) {
  TARN_RETURN_IF_ERROR(LockDirectory(given.directory));
  TARN_RETURN_IF_ERROR(ClearDirectory(given.directory));
  const auto system = given.file_system ? given.file_system : rocksdb::FileSystem::Default();
  env = rocksdb::NewCompositeEnv(std::make_shared<UnsyncedFiles>(system));
  options = TierOptions(env.get(), given.open_files_max);
  rocksdb::DB* opened = nullptr;
  if (const auto status = rocksdb::DB::Open(options, given.directory, &opened); !status.ok())
    return Fail(ErrorCode::kIo, RocksDbError(given.directory, "open the tier", status).message);
  db.reset(opened);
  return {};
}

Status RocksDbColdStore::Files::Write(const std::string& directory, SegmentId segment, const SegmentBytes& bytes) {
  const std::string path = fmt::format("{}/segment-{}-{}.sst", directory, segment.table, segment.number);
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options);
  auto status = writer.Open(path);
  for (std::size_t offset = 0; status.ok() && offset < bytes.bytes.size(); offset += bytes.page_bytes) {
    const std::size_t size = std::min<std::size_t>(bytes.page_bytes, bytes.bytes.size() - offset);
    const PageKey key = KeyOf(segment, static_cast<std::uint32_t>(offset / bytes.page_bytes));
    status = writer.Put(SliceOf(key), {reinterpret_cast<const char*>(bytes.bytes.data()) + offset, size});
  }
  rocksdb::ExternalSstFileInfo info;
  if (status.ok()) status = writer.Finish(&info);
  if (!status.ok()) return Fail(ErrorCode::kIo, RocksDbError(path, "write", status).message);
  rocksdb::IngestExternalFileOptions ingest;
  ingest.move_files = true;
  ingest.snapshot_consistency = false;
  ingest.allow_blocking_flush = false;
  ingest.write_global_seqno = false;
  status = db->IngestExternalFile({path}, ingest);
  if (!status.ok()) return Fail(ErrorCode::kIo, RocksDbError(path, "ingest", status).message);
  const std::size_t pages = (bytes.bytes.size() + bytes.page_bytes - 1) / bytes.page_bytes;
  const Size size{info.file_size, kFileMemoryBytes + pages * kPageMemoryBytes};
  sizes[segment] = size;
  all.file_bytes += size.file_bytes;
  all.memory_bytes += size.memory_bytes;
  return {};
}

Status RocksDbColdStore::Files::Remove(const std::string& directory, SegmentId segment) {
  const PageKey first = KeyOf(segment, 0), last = KeyOf(segment, 0xffffffff);
  const rocksdb::Slice begin = SliceOf(first), end = SliceOf(last);
  const rocksdb::RangePtr range(&begin, &end);
  const auto status = rocksdb::DeleteFilesInRanges(db.get(), db->DefaultColumnFamily(), &range, 1);
  if (!status.ok()) return Fail(ErrorCode::kIo, RocksDbError(directory, "remove a segment", status).message);
  const auto gone = sizes.extract(segment);
  if (gone.empty()) return {};
  all.file_bytes -= gone.mapped().file_bytes;
  all.memory_bytes -= gone.mapped().memory_bytes;
  return {};
}

Status RocksDbColdStore::Files::Read(const std::string& directory, std::span<const RecordAt> records,
                                     std::size_t record_bytes, std::byte* out) {
  while (!records.empty()) {
    std::size_t count = 1, pages = 1;
    for (; count < records.size(); ++count) {
      const RecordAt &record = records[count], &before = records[count - 1];
      const bool next = record.segment != before.segment || record.page != before.page;
      if (next && pages == kMultiGetPages) break;
      pages += next ? 1 : 0;
    }
    TARN_RETURN_IF_ERROR(ReadPages(directory, records.first(count), pages, record_bytes, out));
    records = records.subspan(count);
    out += count * record_bytes;
  }
  return {};
}

// Reads records that are in `pages` pages, at most kMultiGetPages.
Status RocksDbColdStore::Files::ReadPages(const std::string& directory, std::span<const RecordAt> records,
                                          std::size_t pages, std::size_t record_bytes, std::byte* out) {
  std::array<PageKey, kMultiGetPages> keys;
  std::array<rocksdb::Slice, kMultiGetPages> slices;
  std::array<rocksdb::PinnableSlice, kMultiGetPages> values;
  std::array<rocksdb::Status, kMultiGetPages> statuses;
  std::size_t n = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i != 0 && records[i].segment == records[i - 1].segment && records[i].page == records[i - 1].page) continue;
    keys[n] = KeyOf(records[i].segment, records[i].page);
    slices[n] = SliceOf(keys[n]);
    ++n;
  }
  TARN_CHECK(n == pages, "pages are counted wrong");
  db->MultiGet(PageReads(), db->DefaultColumnFamily(), n, slices.data(), values.data(), statuses.data(), true);
  std::size_t page = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const RecordAt& record = records[i];
    if (i != 0 && (record.segment != records[i - 1].segment || record.page != records[i - 1].page)) ++page;
    if (!statuses[page].ok()) return std::unexpected(RocksDbError(directory, "read a cold row", statuses[page]));
    if (record.offset + record_bytes > values[page].size())
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: page {} of segment {}/{} has {} bytes, expected at least {}",
                                                   directory, record.page, record.segment.table, record.segment.number,
                                                   values[page].size(), record.offset + record_bytes));
    std::memcpy(out + i * record_bytes, values[page].data() + record.offset, record_bytes);
  }
  return {};
}

RocksDbColdStore::RocksDbColdStore(DiskPool* pool, RocksDbColdStoreOptions options, std::function<void()> wake)
    : options_(std::move(options)),
      wake_(std::move(wake)),
      files_(std::make_unique<Files>()),
      writes_(pool, "tier-write") {
  readers_.emplace("tier-read", options_.readers);
}

Expected<std::unique_ptr<RocksDbColdStore>> RocksDbColdStore::Open(DiskPool* pool, RocksDbColdStoreOptions options,
                                                                   std::function<void()> wake) {
  std::unique_ptr<RocksDbColdStore> store(new RocksDbColdStore(pool, std::move(options), std::move(wake)));
  TARN_RETURN_IF_ERROR(store->files_->Open(store->options_));
  return store;
}

RocksDbColdStore::~RocksDbColdStore() {
  closing_ = true;
  writes_.Drain();
  readers_.reset();
  files_->db.reset();
  if (files_->lock) (void)files_->ClearDirectory(options_.directory);
}

void RocksDbColdStore::Write(SegmentId segment, std::shared_ptr<const SegmentBytes> bytes) {
  const std::lock_guard lock(mutex_);
  writes_.Post([this, job = Job(WriteJob{segment, std::move(bytes)})] { DoAndReport(job); });
  ++writes_in_progress_;
}

void RocksDbColdStore::Remove(SegmentId segment) {
  writes_.Post([this, job = Job(RemoveJob{segment})] { DoAndReport(job); });
}

Status RocksDbColdStore::Read(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) {
  return files_->Read(options_.directory, records, record_bytes, out);
}

void RocksDbColdStore::Fetch(std::vector<RecordAt> records, std::size_t record_bytes) {
  TARN_CHECK(!records.empty(), "nothing to fetch");
  auto fetch = std::make_shared<FetchJob>();
  fetch->out.resize(records.size() * record_bytes);
  const std::size_t parts = (records.size() + kPartRecords - 1) / kPartRecords;
  fetch->parts_left = parts;
  fetch->records = std::move(records);
  fetch->record_bytes = record_bytes;
  {
    const std::lock_guard lock(mutex_);
    fetches_.push_back(std::move(fetch));
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(parts, options_.readers); ++i)
    readers_->Post([this] { ReadParts(); });
}

std::vector<ColdEvent> RocksDbColdStore::TakeEvents() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void RocksDbColdStore::WaitForWrite() {
  std::unique_lock lock(mutex_);
  const std::size_t before = writes_ended_;
  written_changed_.wait(lock, [&] { return writes_ended_ != before || writes_in_progress_ == 0; });
}

// On the strand.
void RocksDbColdStore::DoAndReport(const Job& job) {
  if (closing_) return;
  ColdEvent event;
  if (const Status memory = CatchExhaustion([&] { event = Do(job); }); !memory) event = Failed(memory.error());
  const bool wrote = std::holds_alternative<WriteJob>(job);
  {
    const std::lock_guard lock(mutex_);
    writes_in_progress_ -= wrote ? 1 : 0;
    writes_ended_ += wrote || event.kind == ColdEvent::Kind::kFailed ? 1 : 0;
    events_.push_back(std::move(event));
  }
  written_changed_.notify_all();
  wake_();
}

ColdEvent RocksDbColdStore::Do(const Job& job) {
  const auto* write = std::get_if<WriteJob>(&job);
  ColdEvent event{.kind = write != nullptr ? ColdEvent::Kind::kWritten : ColdEvent::Kind::kRemoved,
                  .segment = write != nullptr ? write->segment : std::get<RemoveJob>(job).segment,
                  .records = {},
                  .error = {}};
  const Status status = write != nullptr ? files_->Write(options_.directory, event.segment, *write->bytes)
                                         : files_->Remove(options_.directory, event.segment);
  if (!status) return Failed(status.error());
  memory_bytes_ = files_->all.memory_bytes;
  disk_bytes_ = files_->all.file_bytes;
  return event;
}

// On a reader thread. Reads parts until none is left, those of the oldest fetch first.
void RocksDbColdStore::ReadParts() {
  const auto has_more = [](const std::shared_ptr<FetchJob>& job) { return job->next < job->records.size(); };
  std::unique_lock lock(mutex_);
  while (!closing_) {
    const auto found = std::ranges::find_if(fetches_, has_more);
    if (found == fetches_.end()) return;
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): fetches_ may lose it while the mutex is unlocked
    const std::shared_ptr<FetchJob> fetch = *found;
    const std::size_t first = fetch->next, count = std::min(kPartRecords, fetch->records.size() - first);
    fetch->next += count;
    lock.unlock();
    Status status;
    const auto records = std::span<const RecordAt>(fetch->records).subspan(first, count);
    const Status memory = CatchExhaustion([&] {
      status = files_->Read(options_.directory, records, fetch->record_bytes,
                            fetch->out.data() + first * fetch->record_bytes);
    });
    lock.lock();
    if (!memory) status = memory;
    if (!status) fetch->error = status.error();
    if (--fetch->parts_left != 0) continue;
    ReportFetches();
    lock.unlock();
    wake_();
    lock.lock();
  }
}

// Reports the fetches that have ended, in the order in which they began. mutex_ must be locked.
void RocksDbColdStore::ReportFetches() {
  for (; !fetches_.empty() && fetches_.front()->parts_left == 0; fetches_.pop_front()) {
    FetchJob& fetch = *fetches_.front();
    const bool failed = fetch.error.code != ErrorCode::kOk;
    events_.push_back({.kind = failed ? ColdEvent::Kind::kFailed : ColdEvent::Kind::kFetched,
                       .segment = {},
                       .records = std::move(fetch.out),
                       .error = std::move(fetch.error)});
  }
}

}  // namespace tarn::server
