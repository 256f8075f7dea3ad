// Shows that checkpoint files are read back as written, by any number of shards and partitions, and that a damaged byte
// anywhere, a missing file, and an unwritable or full disk are errors that name the file or directory.
#include "server/checkpoint/rocksdb_checkpoint_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <new>
#include <semaphore>

#include "core/codec/manifest.h"
#include "core/position.h"
#include "server/checkpoint/checkpoint_format.h"
#include "server/checkpoint/rocksdb_checkpoint_reader.h"
#include "server/checkpoint/row_loader.h"
#include "server/store/store.h"
#include "tests/unit/server/store/cut_all.h"

namespace {

// The next allocation of this size fails; 0: none does.
std::atomic<std::size_t> next_missing{0};

}  // namespace

// Not inlined: GCC would see free() called on what its own operator new returned, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  std::size_t wanted = bytes;
  if (bytes != 0 && next_missing.compare_exchange_strong(wanted, 0)) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSeed = 3;
constexpr std::uint32_t kBits = 3;

class RocksDbCheckpointStoreTest : public testing::Test {
 protected:
  RocksDbCheckpointStoreTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = (fs::path(testing::TempDir()) / fmt::format("tarn-{}-{}", getpid(), test->name()) / "ckpt-1").string();
    sparse_.id = TableId(1);
    sparse_.name = "sparse";
    sparse_.dim = 3;
    sparse_.optimizer.kind = "adam";
    sparse_.initializer = {InitializerKind::kNormal, 0, 1};
    dense_ = sparse_;
    dense_.id = TableId(2);
    dense_.name = "dense";
    dense_.kind = TableKind::kDense;
    dense_.rows = 100;
  }
  ~RocksDbCheckpointStoreTest() override { fs::remove_all(fs::path(directory_).parent_path()); }

  // The store of shard `shard` of `shards`, with its share of the rows if `filled`.
  std::unique_ptr<Store> Rows(std::uint32_t shard, std::uint32_t shards, std::uint32_t bits, bool filled) {
    StoreOptions options{.job_seed = kSeed, .partition_bits = bits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << bits; ++p)
      if (p * shards >> bits == shard) options.owned.push_back(PartitionId(p));
    auto rows = std::make_unique<Store>(options);
    for (const TableSpec& spec : {sparse_, dense_}) {
      EXPECT_TRUE(rows->AddTable(spec));
      if (!filled) continue;
      const Positioner position(spec, TableSalt(kSeed, spec.name));
      for (Key i = 0; i < (spec.kind == TableKind::kDense ? 100 : rows_each_); ++i) {
        const Key key = spec.kind == TableKind::kDense ? i : i << 48;
        const Section section{PartitionOf(position(key), bits), 1, {}};
        if (!rows->Owns(section.partition)) continue;
        const float gradient[] = {1.0f, float(i), -1.0f};
        rows->Apply(spec.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradient),
                    Clock(0));
      }
    }
    return rows;
  }
  static Snapshot HeadOf(Store* rows, std::uint32_t shard) {
    return {.id = CheckpointId(1),
            .shard = ShardId(shard),
            .partition_bits = rows->partition_bits(),
            .max_clock = Clock(4),
            .tables = rows->cut().Begin()};
  }
  static CheckpointPart WriteRows(std::unique_ptr<Store> rows, std::uint32_t shard, const std::string& directory) {
    RocksDbCheckpointWriter writer(HeadOf(rows.get(), shard), directory);
    if (const Status status = writer.Begin(); !status) return writer.Failed(status.error());
    std::vector<CutRows> chunks;
    while (!ContinueCut(rows.get(), 512, &chunks)) {
    }
    for (CutRows& chunk : chunks)
      if (const Status status = writer.Put(std::move(chunk)); !status) return writer.Failed(status.error());
    return writer.Finish({});
  }
  // Two shards write, and the manifest is made of their parts.
  std::uint64_t WriteAll() {
    Manifest manifest;
    manifest.job_text = "";
    manifest.id = CheckpointId(1);
    manifest.partition_bits = kBits;
    manifest.tables = {sparse_, dense_};
    manifest.generations.push_back({manifest.id, Clock(4), {}, {}, 0});
    std::uint64_t hash = 0;
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      const CheckpointPart part = WriteRows(Rows(shard, 2, kBits, true), shard, directory_);
      EXPECT_EQ(part.code, ErrorCode::kOk) << part.message;
      EXPECT_EQ(part.max_clock, Clock(4));
      hash += part.state_hash;
      for (const CheckpointFile& file : part.files) manifest.generations[0].files.push_back(file);
    }
    EXPECT_EQ(manifest.generations[0].files.size(), 2u);
    EXPECT_TRUE(WriteManifest(directory_, manifest));
    return hash;
  }
  Status Load(Store* rows) {
    RocksDbCheckpointStore store(&pool_, [] {});
    RowLoader loader(rows);
    return store.Load(directory_, loader);
  }

  TableSpec sparse_, dense_;
  std::string directory_;
  Key rows_each_ = 100;  // of the sparse table
  DiskPool pool_;
};

TEST_F(RocksDbCheckpointStoreTest, IsRestoredByAnyNumberOfShards) {
  const std::uint64_t hash = WriteAll();
  for (std::uint32_t shards : {1u, 2u, 3u, 8u}) {
    std::uint64_t sum = 0;
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      auto rows = Rows(shard, shards, kBits, false);
      const Status status = Load(rows.get());
      ASSERT_TRUE(status) << status.error().message;
      sum += rows->StateHash().value();
    }
    EXPECT_EQ(sum, hash) << shards;
  }
}

TEST_F(RocksDbCheckpointStoreTest, IsRestoredWithAnotherNumberOfPartitions) {
  WriteAll();
  auto rows = Rows(0, 1, kBits + 3, false);
  ASSERT_TRUE(Load(rows.get()));
  const auto before = Rows(0, 1, kBits, true);
  for (Key i = 0; i < 100; ++i) {
    EXPECT_EQ(rows->Values(sparse_.id, i << 48).value(), before->Values(sparse_.id, i << 48).value());
    EXPECT_EQ(rows->Values(dense_.id, i).value(), before->Values(dense_.id, i).value());
  }
}

// A sink that counts what it is handed, of the partitions that a row store owns.
struct CountingSink : RowLoader {
  using RowLoader::RowLoader;
  Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) override {
    handed += keys.size();
    return RowLoader::OnRows(keys, rows);
  }
  std::uint64_t handed = 0;
};

TEST_F(RocksDbCheckpointStoreTest, AShardReadsItsOwnRowsOnly) {
  WriteAll();
  for (std::uint32_t shards : {1u, 2u, 3u, 8u}) {
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      auto rows = Rows(shard, shards, kBits, false);
      CountingSink sink(rows.get());
      ASSERT_TRUE(ReadCheckpoint(directory_, sink));
      EXPECT_EQ(sink.handed, rows->row_count()) << shard << " of " << shards;
    }
  }
}

TEST_F(RocksDbCheckpointStoreTest, BlocksWithoutRowsOfTheShardAreNotRead) {
  // Enough rows for many blocks; the index of the file shows which blocks belong to another shard.
  rows_each_ = 60'000;
  WriteAll();
  const std::string path = directory_ + "/1-shard-1.sst";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 8));
  file.put('\xff');
  file.put('\x00');
  file.flush();
  auto even = Rows(0, 2, kBits, false), odd = Rows(1, 2, kBits, false);
  const Status mine = Load(even.get());
  EXPECT_TRUE(mine) << mine.error().message;
  EXPECT_EQ(even->StateHash().value(), Rows(0, 2, kBits, true)->StateHash().value());
  EXPECT_EQ(Load(odd.get()).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(odd->row_count(), 0u);
}

TEST_F(RocksDbCheckpointStoreTest, ADamagedByteIsRefusedWithTheFilesName) {
  WriteAll();
  const std::string path = directory_ + "/1-shard-1.sst";
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  for (const std::streamoff at : {std::streamoff{0}, size / 3, size / 2, size - 1}) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 0x10));
    file.flush();
    auto rows = Rows(0, 1, kBits, false);
    const Status status = Load(rows.get());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(status.error().message.find(path), std::string::npos) << status.error().message;
    EXPECT_EQ(rows->row_count(), 0u);
    file.seekp(at);
    file.put(byte);
  }
  auto rows = Rows(0, 1, kBits, false);
  EXPECT_TRUE(Load(rows.get()));
}

TEST_F(RocksDbCheckpointStoreTest, AShortOrMissingFileIsRefusedWithItsName) {
  WriteAll();
  const std::string path = directory_ + "/1-shard-0.sst";
  fs::resize_file(path, fs::file_size(path) - 1);
  auto rows = Rows(0, 1, kBits, false);
  EXPECT_NE(Load(rows.get()).error().message.find(path), std::string::npos);
  fs::remove(path);
  EXPECT_NE(Load(rows.get()).error().message.find(path), std::string::npos);
  fs::remove(directory_ + "/MANIFEST");
  EXPECT_EQ(Load(rows.get()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(rows->row_count(), 0u);
}

TEST_F(RocksDbCheckpointStoreTest, ATableOfAnotherShapeIsRefusedByName) {
  WriteAll();
  dense_.dim = 4;
  auto rows = Rows(0, 1, kBits, false);
  const Status status = Load(rows.get());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "table 'dense': dim is 3 in the checkpoint and 4 in the job");
}

TEST_F(RocksDbCheckpointStoreTest, AShardWithoutRowsWritesNoFile) {
  const CheckpointPart part = WriteRows(Rows(0, 1, kBits, false), 0, directory_);
  EXPECT_EQ(part.code, ErrorCode::kOk);
  EXPECT_TRUE(part.files.empty());
}

TEST_F(RocksDbCheckpointStoreTest, TheErrorNamesAnUnwritableDirectory) {
  const fs::path in_the_way = fs::path(directory_).parent_path();
  fs::create_directories(in_the_way.parent_path());
  std::ofstream(in_the_way.string()) << "a file";
  const CheckpointPart part = WriteRows(Rows(0, 1, kBits, true), 0, directory_);
  EXPECT_EQ(part.code, ErrorCode::kIo);
  EXPECT_NE(part.message.find(directory_), std::string::npos) << part.message;
  EXPECT_TRUE(part.files.empty());
}

TEST_F(RocksDbCheckpointStoreTest, TheErrorOfAFullDiskNamesThePath) {
  // A limit on the size of files simulates a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const CheckpointPart part = WriteRows(Rows(0, 1, kBits, true), 0, directory_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(part.code, ErrorCode::kIo);
  const std::string path = directory_ + "/1-shard-0.sst";
  EXPECT_NE(part.message.find(path), std::string::npos) << part.message;
  EXPECT_EQ(part.message.find(path), part.message.rfind(path)) << "named twice: " << part.message;
}

// Writes the cut of a row store slice by slice, as a shard does.
class RocksDbCheckpointStream : public RocksDbCheckpointStoreTest {
 protected:
  // Puts the next slice. Returns false if it was the last.
  bool PutSlice(RocksDbCheckpointStore* store, Store* rows) {
    std::vector<CutRows> chunks;
    const bool done = ContinueCut(rows, 512, &chunks);
    for (CutRows& chunk : chunks) store->Put(std::move(chunk));
    return !done;
  }
  CheckpointPart Wait(RocksDbCheckpointStore* store) {
    for (;;) {
      if (reported_.empty()) woken_.acquire();
      for (CheckpointPart& part : store->TakeWritten()) reported_.push_back(std::move(part));
      if (reported_.empty()) continue;
      CheckpointPart part = std::move(reported_.front());
      reported_.pop_front();
      return part;
    }
  }
  std::counting_semaphore<> woken_{0};
  std::deque<CheckpointPart> reported_;
};

TEST_F(RocksDbCheckpointStream, WritesInTheBackgroundAndWakesTheShard) {
  RocksDbCheckpointStore store(&pool_, [&] { woken_.release(); });
  const auto rows = Rows(2, 3, kBits, true);
  store.Begin(HeadOf(rows.get(), 2), directory_);
  while (PutSlice(&store, rows.get())) {
  }
  store.Finish({});
  const CheckpointPart part = Wait(&store);
  EXPECT_EQ(part.id, CheckpointId(1));
  EXPECT_EQ(part.state_hash, rows->StateHash().value());
  ASSERT_EQ(part.files.size(), 1u);
  EXPECT_EQ(part.files[0].name, "1-shard-2.sst");
  EXPECT_EQ(part.files[0].bytes, fs::file_size(directory_ + "/1-shard-2.sst"));
  EXPECT_EQ(part.files[0].rows, rows->row_count());
  EXPECT_TRUE(store.TakeWritten().empty());
}

TEST_F(RocksDbCheckpointStream, HasNoRoomAtItsLimitAndWakesTheShardOnceItHas) {
  rows_each_ = 5000;
  const auto rows = Rows(0, 1, kBits, true);
  RocksDbCheckpointStore store(&pool_, [&] { woken_.release(); }, 2000);
  store.Begin(HeadOf(rows.get(), 0), directory_);
  std::uint64_t waited = 0;
  for (bool more = true; more;) {
    if (!store.HasRoom()) {
      ++waited;
      woken_.acquire();
      continue;
    }
    more = PutSlice(&store, rows.get());
  }
  store.Finish({});
  EXPECT_EQ(Wait(&store).state_hash, rows->StateHash().value());
  // One chunk is over the bound of this test.
  EXPECT_GT(waited, 0u);
}

TEST_F(RocksDbCheckpointStream, AFailureIsReportedAtOnceAndTheRestIsDropped) {
  const fs::path in_the_way = fs::path(directory_).parent_path();
  std::ofstream(in_the_way.string()) << "a file";
  const auto rows = Rows(0, 1, kBits, true);
  RocksDbCheckpointStore store(&pool_, [&] { woken_.release(); });
  store.Begin(HeadOf(rows.get(), 0), directory_);
  while (PutSlice(&store, rows.get())) {
  }
  const CheckpointPart part = Wait(&store);
  EXPECT_EQ(part.code, ErrorCode::kIo);
  EXPECT_NE(part.message.find(directory_), std::string::npos) << part.message;
  store.Finish({});
  fs::remove(in_the_way);
  store.Begin(HeadOf(rows.get(), 1), directory_);
  while (PutSlice(&store, rows.get())) {
  }
  store.Finish({});
  const CheckpointPart next = Wait(&store);
  EXPECT_EQ(next.code, ErrorCode::kOk) << next.message;
  EXPECT_EQ(next.files.at(0).name, "1-shard-1.sst");
}

TEST_F(RocksDbCheckpointStream, OutOfMemoryInBeginIsReported) {
  const auto rows = Rows(0, 1, kBits, true);
  RocksDbCheckpointStore store(&pool_, [&] { woken_.release(); });
  Snapshot head = HeadOf(rows.get(), 0);
  next_missing = sizeof(RocksDbCheckpointWriter);
  store.Begin(std::move(head), directory_);
  const CheckpointPart part = Wait(&store);
  EXPECT_EQ(next_missing, 0u);
  EXPECT_EQ(part.id, CheckpointId(1));
  EXPECT_EQ(part.code, ErrorCode::kIo);
  EXPECT_EQ(part.message, "out of memory");
  EXPECT_EQ(part.max_clock, Clock(4));
  while (PutSlice(&store, rows.get())) {
  }
  store.Finish({});
  store.Begin(HeadOf(rows.get(), 1), directory_);
  while (PutSlice(&store, rows.get())) {
  }
  store.Finish({});
  EXPECT_EQ(Wait(&store).code, ErrorCode::kOk);
  EXPECT_TRUE(store.TakeWritten().empty());
}

TEST_F(RocksDbCheckpointStream, AnAbandonedPartIsRemovedAndReportedAsCancelled) {
  rows_each_ = 5000;
  const auto rows = Rows(0, 1, kBits, true);
  RocksDbCheckpointStore store(&pool_, [&] { woken_.release(); });
  store.Begin(HeadOf(rows.get(), 0), directory_);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(PutSlice(&store, rows.get()));
  rows->cut().Drop();
  store.Abandon();
  store.Begin(HeadOf(rows.get(), 1), directory_);
  while (PutSlice(&store, rows.get())) {
  }
  store.Finish({});
  EXPECT_EQ(Wait(&store).code, ErrorCode::kCancelled);
  const CheckpointPart part = Wait(&store);
  EXPECT_EQ(part.code, ErrorCode::kOk);
  ASSERT_EQ(part.files.size(), 1u);
  EXPECT_EQ(part.files[0].name, "1-shard-1.sst");
  EXPECT_FALSE(fs::exists(directory_ + "/1-shard-0.sst"));
  EXPECT_TRUE(store.TakeWritten().empty());
}

TEST(CheckpointFormatTest, KeysSortByTablePartitionAndKey) {
  const CheckpointKey keys[] = {{TableId(1), PartitionId(2), ~Key{0}},
                                {TableId(1), PartitionId(3), 0},
                                {TableId(1), PartitionId(3), 255},
                                {TableId(1), PartitionId(3), 256},
                                {TableId(256), PartitionId(0), 1}};
  std::string before;
  for (const CheckpointKey& key : keys) {
    const auto bytes = EncodeCheckpointKey(key);
    const std::string text(bytes.data(), bytes.size());
    EXPECT_LT(before, text);
    before = text;
    const CheckpointKey back = DecodeCheckpointKey(text);
    EXPECT_EQ(back.table, key.table);
    EXPECT_EQ(back.partition, key.partition);
    EXPECT_EQ(back.key, key.key);
  }
}

}  // namespace
}  // namespace tarn::server
