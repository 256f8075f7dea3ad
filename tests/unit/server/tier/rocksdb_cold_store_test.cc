// Shows the tier's store on RocksDB: pages are read as they were written; a failure of any operation, a full disk, a
// directory that cannot be written or is not a tier's, and a damaged byte each give an error that names the file.
#include "server/tier/rocksdb_cold_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <semaphore>

#include "core/hash.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kPageBytes = 400;
constexpr std::uint32_t kRecordBytes = 40;
constexpr std::uint32_t kPages = 50;

// Lets a number of operations succeed, then fails one or all later ones.
struct Faults {
  std::atomic<std::int64_t> until{-1};  // negative: none fails
  std::atomic<std::int64_t> operations{0};
  std::atomic<bool> reads{true}, writes{true};
  rocksdb::IOStatus Next(bool write) {
    if (write ? !writes : !reads) return {};
    const std::int64_t n = operations++;
    return until >= 0 && n >= until ? rocksdb::IOStatus::IOError("No space left on device") : rocksdb::IOStatus();
  }
};

class FaultyWritable : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyWritable(std::unique_ptr<rocksdb::FSWritableFile> file, Faults* faults)
      : FSWritableFileOwnerWrapper(std::move(file)), faults_(faults) {}
  using FSWritableFileOwnerWrapper::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(true); !status.ok()) return status;
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info, rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(true); !status.ok()) return status;
    return FSWritableFileOwnerWrapper::Append(data, options, info, debug);
  }
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(true); !status.ok()) return status;
    return FSWritableFileOwnerWrapper::Close(options, debug);
  }

 private:
  Faults* faults_;
};

class FaultyReadable : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultyReadable(std::unique_ptr<rocksdb::FSRandomAccessFile> file, Faults* faults)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), faults_(faults) {}
  rocksdb::IOStatus Read(std::uint64_t offset, std::size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* debug) const override {
    if (auto status = faults_->Next(false); !status.ok()) return status;
    return FSRandomAccessFileOwnerWrapper::Read(offset, n, options, result, scratch, debug);
  }
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, std::size_t n, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(false); !status.ok()) return status;
    return FSRandomAccessFileOwnerWrapper::MultiRead(requests, n, options, debug);
  }

 private:
  Faults* faults_;
};

class FaultyFiles : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultyFiles(Faults* faults) : FileSystemWrapper(FileSystem::Default()), faults_(faults) {}
  const char* Name() const override { return "FaultyFiles"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(true); !status.ok()) return status;
    const auto status = target()->NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyWritable>(std::move(*file), faults_);
    return status;
  }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(false); !status.ok()) return status;
    const auto status = target()->NewRandomAccessFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyReadable>(std::move(*file), faults_);
    return status;
  }
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(true); !status.ok()) return status;
    return target()->LinkFile(from, to, options, debug);
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    if (auto status = faults_->Next(true); !status.ok()) return status;
    return target()->RenameFile(from, to, options, debug);
  }

 private:
  Faults* faults_;
};

class RocksDbColdStoreTest : public testing::Test {
 protected:
  RocksDbColdStoreTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = (fs::path(testing::TempDir()) / fmt::format("tarn-tier-{}-{}", getpid(), test->name())).string();
    fs::remove_all(directory_);
  }
  ~RocksDbColdStoreTest() override {
    store_.reset();
    fs::remove_all(directory_);
  }

  Status Open(std::shared_ptr<rocksdb::FileSystem> files = nullptr, int open_files_max = -1) {
    auto store = RocksDbColdStore::Open(
        &pool_, {.directory = directory_, .open_files_max = open_files_max, .file_system = std::move(files)},
        [this] { events_ready_.release(); });
    if (!store) return std::unexpected(store.error());
    store_ = std::move(*store);
    return {};
  }
  // Waits until something has ended.
  std::vector<ColdEvent> Events() {
    for (;;) {
      auto events = store_->TakeEvents();
      if (!events.empty()) return events;
      events_ready_.acquire();
    }
  }
  static std::shared_ptr<SegmentBytes> Segment(SegmentId id) {
    auto segment = std::make_shared<SegmentBytes>();
    segment->page_bytes = kPageBytes;
    SplitMix rng(id.number * 1000 + id.table);
    segment->bytes.resize(kPages * kPageBytes - 3 * kRecordBytes);  // the last page is short
    for (auto& byte : segment->bytes) byte = static_cast<std::byte>(rng.Next());
    return segment;
  }
  // Writes a segment. Returns its event, kFailed if it failed.
  ColdEvent Write(SegmentId id) {
    store_->Write(id, Segment(id));
    return Events().front();
  }
  static std::vector<RecordAt> Records(SegmentId id) {
    std::vector<RecordAt> records;
    for (std::uint32_t page = 0; page < kPages; ++page)
      for (std::uint32_t offset = page % 3 * kRecordBytes; offset < kPageBytes - 3 * kRecordBytes;
           offset += 2 * kRecordBytes)
        records.push_back({id, page, offset});
    return records;
  }
  static void ExpectRecords(std::span<const RecordAt> records, std::span<const std::byte> read) {
    ASSERT_EQ(read.size(), records.size() * kRecordBytes);
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto segment = Segment(records[i].segment);
      const auto* expected = segment->bytes.data() + records[i].page * kPageBytes + records[i].offset;
      ASSERT_TRUE(std::equal(expected, expected + kRecordBytes, read.data() + i * kRecordBytes)) << i;
    }
  }

  std::uint64_t BytesOfFiles() const {
    std::uint64_t bytes = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_))
      if (entry.path().extension() == ".sst") bytes += entry.file_size();
    return bytes;
  }

  std::string directory_;
  std::counting_semaphore<> events_ready_{0};
  DiskPool pool_;
  Faults faults_;  // outlives the store, whose files ask it whether to fail
  std::unique_ptr<RocksDbColdStore> store_;
};

TEST_F(RocksDbColdStoreTest, SegmentsAreReadBackAndRemoved) {
  ASSERT_TRUE(Open());
  std::vector<RecordAt> records;
  for (std::uint32_t n = 0; n < 20; ++n) {
    const SegmentId id{n % 2, n * 7 % 20};  // in no order
    EXPECT_EQ(Write(id).kind, ColdEvent::Kind::kWritten);
    std::ranges::copy(Records(id), std::back_inserter(records));
  }
  std::ranges::sort(records);
  std::vector<std::byte> read(records.size() * kRecordBytes);
  ASSERT_TRUE(store_->Read(records, kRecordBytes, read.data()));
  ExpectRecords(records, read);
  EXPECT_GT(store_->memory_bytes(), 0u);
  EXPECT_GT(store_->disk_bytes(), 20 * kPages * kPageBytes);
  EXPECT_EQ(store_->disk_bytes(), BytesOfFiles());

  store_->Remove({0, 14});
  EXPECT_EQ(Events().front().kind, ColdEvent::Kind::kRemoved);
  const auto gone = Records({0, 14});
  EXPECT_FALSE(store_->Read(gone, kRecordBytes, read.data()));
  EXPECT_EQ(store_->disk_bytes(), BytesOfFiles());
  EXPECT_EQ(Write({0, 14}).kind, ColdEvent::Kind::kWritten);  // the number is free again
  ASSERT_TRUE(store_->Read(records, kRecordBytes, read.data()));
  ExpectRecords(records, read);
}

// A process that may open few files still serves any number of segments.
TEST_F(RocksDbColdStoreTest, KeepsTheLimitOfOpenFiles) {
  constexpr int kOpenFiles = 64, kSegments = 3 * kOpenFiles;
  ASSERT_TRUE(Open(nullptr, kOpenFiles));
  std::vector<RecordAt> records;
  for (std::uint32_t n = 0; n < kSegments; ++n) {
    ASSERT_EQ(Write({1, n}).kind, ColdEvent::Kind::kWritten);
    records.push_back({{1, n}, 0, 0});
  }
  std::vector<std::byte> read(records.size() * kRecordBytes);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(store_->Read(records, kRecordBytes, read.data()));
    ExpectRecords(records, read);
    int open = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      open += fs::read_symlink(entry.path(), gone).string().starts_with(directory_) ? 1 : 0;
    }
    EXPECT_GT(open, 0);
    EXPECT_LE(open, kOpenFiles + 8);  // its manifest, its marker and the like
  }
}

TEST_F(RocksDbColdStoreTest, FetchesEndInTheirOrder) {
  ASSERT_TRUE(Open());
  std::vector<std::vector<RecordAt>> fetches;
  for (std::uint32_t n = 0; n < 8; ++n) {
    Write({1, n});
    fetches.push_back(Records({1, n}));
    if (n % 2 == 1) fetches.back().resize(1);
  }
  for (const auto& fetch : fetches) store_->Fetch(fetch, kRecordBytes);
  std::size_t next = 0;
  while (next < fetches.size())
    for (const ColdEvent& event : Events()) {
      ASSERT_EQ(event.kind, ColdEvent::Kind::kFetched) << event.error.message;
      ExpectRecords(fetches[next++], event.records);
    }
}

// The n-th write, rename or link and all later ones fail, for each n: opening or writing returns an error, and segments
// written before are read correctly. (RocksDB's own reads of a file that it has just written do not fail here:
// version 7.8 ignores their results.)
TEST_F(RocksDbColdStoreTest, AFailureAtAnyWriteIsAnError) {
  std::int64_t operations = 1;
  for (std::int64_t n = -1; n < operations; ++n) {
    faults_.reads = false;
    faults_.operations = 0;
    faults_.until = n;
    const Status opened = Open(std::make_shared<FaultyFiles>(&faults_));
    Error error{opened ? ErrorCode::kOk : opened.error().code, opened ? "" : opened.error().message};
    for (std::uint32_t s = 0; s < 3 && error.code == ErrorCode::kOk; ++s) {
      const ColdEvent event = Write({1, s});
      error = event.error;
      if (event.kind == ColdEvent::Kind::kFailed) break;
      const auto records = Records({1, s});
      std::vector<std::byte> read(records.size() * kRecordBytes);
      ASSERT_TRUE(store_->Read(records, kRecordBytes, read.data()));
      ExpectRecords(records, read);
      error.code = ErrorCode::kOk;
    }
    if (n < 0) {
      EXPECT_EQ(error.code, ErrorCode::kOk) << error.message;
      operations = faults_.operations;
      EXPECT_GT(operations, 20);
    } else {
      EXPECT_EQ(error.code, ErrorCode::kIo) << n;
      EXPECT_NE(error.message.find(directory_), std::string::npos) << error.message;
    }
    store_.reset();
  }
}

TEST_F(RocksDbColdStoreTest, AFailureAtAnyReadIsAnError) {
  faults_.reads = false;
  ASSERT_TRUE(Open(std::make_shared<FaultyFiles>(&faults_)));
  for (std::uint32_t s = 0; s < 8; ++s) ASSERT_EQ(Write({1, s}).kind, ColdEvent::Kind::kWritten);
  faults_.reads = true;
  faults_.writes = false;
  std::int64_t operations = 1;
  for (std::int64_t n = -1; n < operations; ++n) {
    faults_.operations = 0;
    faults_.until = n;
    bool failed = false;
    for (std::uint32_t s = 0; s < 8 && !failed; ++s) {
      const auto records = Records({1, s});
      std::vector<std::byte> read(records.size() * kRecordBytes);
      const Status status = store_->Read(records, kRecordBytes, read.data());
      failed = !status;
      if (status) {
        ExpectRecords(records, read);
        continue;
      }
      EXPECT_EQ(status.error().code, ErrorCode::kIo);
      EXPECT_NE(status.error().message.find(directory_), std::string::npos);
    }
    EXPECT_EQ(failed, n >= 0);
    if (n < 0) operations = faults_.operations;
  }
  EXPECT_GE(operations, 8);
}

TEST_F(RocksDbColdStoreTest, AFetchThatCannotReadFails) {
  faults_.reads = false;
  ASSERT_TRUE(Open(std::make_shared<FaultyFiles>(&faults_)));
  Write({1, 0});
  faults_.reads = true;
  faults_.until = 0;
  store_->Fetch(Records({1, 0}), kRecordBytes);
  const auto events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ColdEvent::Kind::kFailed);
  EXPECT_EQ(events[0].error.code, ErrorCode::kIo);
}

TEST_F(RocksDbColdStoreTest, ADamagedPageIsNotRead) {
  ASSERT_TRUE(Open());
  Write({1, 0});
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(9000);
    file.put('\x55');
    file.put('\x55');
  }
  const auto records = Records({1, 0});
  std::vector<std::byte> read(records.size() * kRecordBytes);
  const Status status = store_->Read(records, kRecordBytes, read.data());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(status.error().message.find(directory_), std::string::npos);
}

TEST_F(RocksDbColdStoreTest, RefusesADirectoryThatIsNotATiers) {
  fs::create_directories(directory_);
  std::ofstream(directory_ + "/thesis.tex") << "years of work";
  const Status status = Open();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(directory_ + "/thesis.tex"));
}

TEST_F(RocksDbColdStoreTest, EmptiesAndLocksItsDirectory) {
  ASSERT_TRUE(Open());
  Write({1, 0});
  auto second = RocksDbColdStore::Open(&pool_, {.directory = directory_, .file_system = nullptr}, [] {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  store_.reset();
  EXPECT_FALSE(std::ranges::any_of(fs::directory_iterator(directory_),
                                   [](const auto& entry) { return entry.path().extension() == ".sst"; }));
  std::ofstream(directory_ + "/left.sst") << "by a process that was killed";
  ASSERT_TRUE(Open());
  EXPECT_FALSE(fs::exists(directory_ + "/left.sst"));
}

TEST_F(RocksDbColdStoreTest, ADirectoryThatCannotBeWrittenIsAnError) {
  directory_ = "/proc/tarn-tier";
  const Status status = Open();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_NE(status.error().message.find(directory_), std::string::npos);
}

}  // namespace
}  // namespace tarn::server
