// Shows that a manifest is read as it was written, that damage anywhere in it or to its files is an error that names
// it, and that only complete checkpoints are found.
#include "core/codec/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/file.h"
#include "core/limits.h"
#include "tests/unit/core/codec/old_seal.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

Manifest Small() {
  Manifest m;
  m.job_text = "[job]\nname = \"x\"\n";
  m.fingerprint = 77;
  m.id = CheckpointId(3);
  m.partition_bits = 6;
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "users";
  spec.dim = 8;
  spec.initializer = {InitializerKind::kNormal, 0, 0.01f};
  spec.optimizer.kind = "adam";
  spec.optimizer.learning_rate = 0.25f;
  spec.optimizer.schedule = {ScheduleKind::kCosine, 5, 100, 0.5f};
  spec.consistency = {ConsistencyMode::kSsp, 4, ApplyMode::kImmediate};
  spec.push_codec = ValueCodec::kBf16;
  m.tables.push_back(spec);
  m.generations.push_back({CheckpointId(1), Clock(20), {{"shard-0.rows", 5, 0xdeadbeef, 2}}, {}, 0xabc});
  m.generations.push_back({CheckpointId(3),
                           Clock(44),
                           {{"3-shard-0.rows", 3, 0xbeef, 1, 7, 8, PartitionId(2), PartitionId(5)}},
                           {{TableId(1), 1, 7, 8, 100}},
                           0xdef});
  m.state_hash = 0x123456789abcdef0;
  m.next_incarnation = Incarnation(9);
  m.resume_clock = Clock(44);
  m.data.rows[0] = 100;
  m.data.rows[2] = 7;
  m.data.split_rows = 30;
  m.data.epoch = 2;
  m.data.base = Clock(40);
  m.data.ceiling = Clock(50);
  m.data.trained = {30, 10, 0, 10};
  m.data.quality.AddBinary(0.5f, true);
  m.data.quality.AddBinary(-1.5f, false);
  m.data.quality.AddLoss(0.675);
  EpochResult epoch;
  epoch.epoch = 1;
  epoch.best = true;
  epoch.train = {.rows = 100, .log_loss = 0.5, .auc = 0.7, .accuracy = 0.8, .normalized_entropy = 0.9};
  epoch.valid = epoch.train;
  m.epochs.push_back(epoch);
  m.samples = 250;
  m.batches_repeated = 1;
  m.batches_behind = 2;
  m.workers_died = 3;
  m.seconds = 1.5;
  m.train_seconds = 1.25;
  m.best_checkpoint = "run/checkpoints/ckpt-2";
  return m;
}

// The manifest of a checkpoint that the program of a version wrote.
std::string OldManifest(int version) {
  const std::string path = std::string(TARN_OLD_CHECKPOINTS "/manifest-") + std::to_string(version) + "/ckpt-" +
                           (version == 1 ? "1" : "2") + "/MANIFEST";
  return ReadFile(path, 1 << 20).value_or("");
}

// What version 1 wrote for such a manifest, without scores and splits.
std::string VersionOne() {
  constexpr std::string_view kHex =
      "5441524e434b505401000000c0fcb51510020000000000003000000054524e4d"
      "2800480004002000280008000c00100030003800400014001800000000000000"
      "0000000000001c0028000000c401000006000000c4000000b80000004c000000"
      "ac0000002c0000004d000000000000000300000000000000f0debc9a78563412"
      "09000000000000002c0000000000000000000000000012001200040000000000"
      "0000000008000c00120000004000000038000000180000000000120010000000"
      "000000000000040008000c0012000000140000000c0000000400000000000000"
      "0000000000000000000000000300000000000000000000000000000000000000"
      "000000000000000000000000000000000100000018000000010000005c000000"
      "0c00200004000c00080014000c0000001c000000efbeadde0500000000000000"
      "0200000000000000000000000c00000073686172642d302e726f777300000000"
      "18008c0008000c00060010000000140020008000000007001800000000000101"
      "01000000800000000800000003000000000000000ad7233c060000000000803e"
      "6666663f6666663f6666663f77be7f3f77cc2b3200000000000000000000803f"
      "0000000000000000000000000000000000000000000000000200000000000000"
      "050000000000000064000000000000000000003f000000000100000004000000"
      "00000000050000007573657273000000110000005b6a6f625d0a6e616d65203d"
      "202278220a000000";
  std::string bytes;
  for (std::size_t i = 0; i < kHex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(kHex.substr(i, 2)), nullptr, 16));
  return bytes;
}

class ManifestFile : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("tarn_manifest_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "checkpoints/ckpt-3");
    directory_ = (root_ / "checkpoints/ckpt-3").string();
    AddFiles(directory_);
  }
  static void AddFiles(const std::string& directory) {
    std::ofstream(directory + "/shard-0.rows") << "12345";
    std::ofstream(directory + "/3-shard-0.rows") << "123";
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
  std::string directory_;
};

TEST(Manifest, ReadsBackAsWritten) {
  const Manifest m = Small();
  auto read = DecodeManifest(EncodeManifest(m), "MANIFEST");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->job_text, m.job_text);
  EXPECT_EQ(read->tables, m.tables);
  EXPECT_EQ(read->epochs, m.epochs);
  EXPECT_EQ(read->data.trained, m.data.trained);
  EXPECT_EQ(read->data.base, m.data.base);
  EXPECT_EQ(read->data.rows[2], 7u);
  EXPECT_EQ(read->data.quality.buckets, m.data.quality.buckets);
  EXPECT_EQ(read->data.quality.loss_sum, m.data.quality.loss_sum);
  ASSERT_EQ(read->generations.size(), 2u);
  EXPECT_EQ(read->generations[0].files[0].name, "shard-0.rows");
  EXPECT_LT(read->generations[0].files[0].last, read->generations[0].files[0].first);  // not known
  EXPECT_EQ(read->generations[1].files[0].removed, 7u);
  EXPECT_EQ(read->generations[1].files[0].last, PartitionId(5));
  EXPECT_EQ(read->generations[1].tables, m.generations[1].tables);
  EXPECT_EQ(read->state_hash, m.state_hash);
  EXPECT_EQ(read->resume_clock, m.resume_clock);
  EXPECT_EQ(read->best_checkpoint, m.best_checkpoint);
  EXPECT_EQ(EncodeManifest(*read), EncodeManifest(m));
}

TEST(Manifest, ScoresWithoutAucAreReadBack) {
  Manifest m = Small();
  m.epochs[0].valid = Scores{.rows = 7, .log_loss = 0.5};
  const auto read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->epochs[0].valid->auc);
  EXPECT_EQ(read->epochs, m.epochs);
}

TEST(Manifest, TablesOfDeltasAndWithBackupWorkersAreReadBack) {
  Manifest m = Small();
  m.tables[0].consistency = {ConsistencyMode::kBsp, 0, ApplyMode::kAggregated, 3};
  m.tables[0].pushes = PushedValues::kDeltas;
  const auto read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tables, m.tables);
}

TEST(Manifest, BlobsOfWorkersAreReadBackOrRefused) {
  Manifest m = Small();
  m.blobs = {{WorkerRank(0), Incarnation(7), {"3-worker-0-7.blob", 100, 5}},
             {WorkerRank(4), Incarnation(9), {"3-worker-4-9.blob", 1, 6}}};
  const auto read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->blobs.size(), 2u);
  EXPECT_EQ(read->blobs[1].rank, WorkerRank(4));
  EXPECT_EQ(read->blobs[1].incarnation, Incarnation(9));
  EXPECT_EQ(read->blobs[1].file.name, "3-worker-4-9.blob");
  EXPECT_EQ(read->blobs[0].file.crc32c, 5u);
  const auto refused = [&](auto change) {
    Manifest bad = m;
    change(&bad.blobs);
    const auto decoded = DecodeManifest(EncodeManifest(bad), "m");
    return decoded ? "accepted" : decoded.error().message;
  };
  EXPECT_EQ(refused([](auto* blobs) { std::swap((*blobs)[0], (*blobs)[1]); }),
            "m: field blobs (not in ascending order) is invalid");
  EXPECT_EQ(refused([](auto* blobs) { (*blobs)[1].file.name = "shard-0.rows"; }),
            "m: field blobs (file 'shard-0.rows' twice) is invalid");
  EXPECT_EQ(refused([](auto* blobs) { (*blobs)[1].file.bytes = 0; }),
            "m: field blobs (file '3-worker-4-9.blob' of 0 bytes) is invalid");
  const auto many = [&](std::uint32_t n) {
    return refused([&](std::vector<WorkerBlob>* blobs) {
      blobs->clear();
      for (std::uint32_t i = 0; i < n; ++i)
        blobs->push_back({WorkerRank(i), Incarnation(i), {std::to_string(i), 1, 6}});
    });
  };
  EXPECT_EQ(many(limits::kBlobsMax), "accepted");
  EXPECT_EQ(many(limits::kBlobsMax + 1), "m: field blobs (16385 of them) is invalid");
}

TEST_F(ManifestFile, TheErrorNamesAMissingBlob) {
  Manifest m = Small();
  m.blobs = {{WorkerRank(0), Incarnation(7), {"3-worker-0-7.blob", 3, 5}}};
  EXPECT_FALSE(WriteManifest(directory_, m));
  std::ofstream(directory_ + "/3-worker-0-7.blob") << "abc";
  ASSERT_TRUE(WriteManifest(directory_, m));
  EXPECT_TRUE(ReadManifest(directory_));
  std::ofstream(directory_ + "/3-worker-0-7.blob") << "ab";
  const auto read = ReadManifest(directory_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, directory_ + "/3-worker-0-7.blob: 2 bytes, expected 3");
}

// The alignment of each part of the body depends on the lengths of the others.
TEST(Manifest, IsReadBackAtAnyAlignmentOfItsParts) {
  Manifest m = Small();
  for (std::size_t text = 0; text < 40; ++text)
    for (std::size_t tables = 0; tables < 4; ++tables) {
      m.job_text = std::string(text, 'x');
      m.generations[0].tables.assign(tables, {TableId(1), 2, 3, 4, 5});
      m.generations[1].tables.assign((tables + text) % 3, {TableId(1), 2, 3, 4, 5});
      const auto read = DecodeManifest(EncodeManifest(m), "m");
      ASSERT_TRUE(read) << text << " " << tables << ": " << read.error().message;
      EXPECT_EQ(read->generations[1].tables, m.generations[1].tables);
    }
}

TEST(Manifest, EveryFlippedByteIsFound) {
  const std::string good = EncodeManifest(Small());
  for (std::size_t i = 0; i < good.size(); ++i)
    for (char flip : {'\x01', '\x80', '\xff'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      auto read = DecodeManifest(bad, "run/MANIFEST");
      ASSERT_FALSE(read) << "byte " << i;
      EXPECT_TRUE(read.error().message.starts_with("run/MANIFEST: ")) << read.error().message;
    }
}

TEST(Manifest, EveryTruncationIsFound) {
  const std::string good = EncodeManifest(Small());
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(DecodeManifest(good.substr(0, size), "m"));
  EXPECT_FALSE(DecodeManifest(good + "x", "m"));
}

TEST(Manifest, TheErrorNamesAnotherVersion) {
  std::string bytes = EncodeManifest(Small());
  bytes[8] = 99;
  auto read = DecodeManifest(bytes, "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(read.error().message, "m: format version 99, expected 1 to 4: a newer tarn wrote it");
}

TEST_F(ManifestFile, FilesMustExistAndBeWhole) {
  ASSERT_TRUE(WriteManifest(directory_, Small()));
  auto read = ReadManifest(directory_);
  ASSERT_TRUE(read) << read.error().message;

  std::ofstream(directory_ + "/shard-0.rows") << "1234";
  read = ReadManifest(directory_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, directory_ + "/shard-0.rows: 4 bytes, expected 5");

  fs::remove(directory_ + "/shard-0.rows");
  read = ReadManifest(directory_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kNotFound);
  EXPECT_NE(read.error().message.find("shard-0.rows"), std::string::npos);
}

TEST_F(ManifestFile, NamesOutsideTheDirectoryAreRefused) {
  Manifest m = Small();
  m.generations[0].files[0].name = "../shard-0.rows";
  EXPECT_EQ(WriteManifest(directory_, m).error().code, ErrorCode::kCorrupt);
  ASSERT_TRUE(WriteFileAtomic(directory_ + "/MANIFEST", EncodeManifest(m)));
  auto read = ReadManifest(directory_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
}

TEST_F(ManifestFile, NoManifestIsWrittenForMissingOrIncompleteFiles) {
  fs::resize_file(directory_ + "/3-shard-0.rows", 2);
  EXPECT_EQ(WriteManifest(directory_, Small()).error().message, directory_ + "/3-shard-0.rows: 2 bytes, expected 3");
  fs::remove(directory_ + "/3-shard-0.rows");
  EXPECT_EQ(WriteManifest(directory_, Small()).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(fs::exists(directory_ + "/MANIFEST"));
}

TEST_F(ManifestFile, AChainMustEndWithTheCheckpoint) {
  Manifest m = Small();
  m.generations.pop_back();
  ASSERT_TRUE(WriteManifest(directory_, m));
  EXPECT_EQ(ReadManifest(directory_).error().message,
            directory_ + "/MANIFEST: its last generation is not checkpoint 3");
  m.generations.clear();
  ASSERT_TRUE(WriteManifest(directory_, m));
  EXPECT_EQ(ReadManifest(directory_).error().code, ErrorCode::kCorrupt);
}

TEST_F(ManifestFile, AManifestOfAnotherCheckpointIsRefused) {
  ASSERT_TRUE(WriteManifest(directory_, Small()));
  fs::rename(directory_, root_ / "checkpoints/ckpt-4");
  auto read = ReadManifest((root_ / "checkpoints/ckpt-4/").string());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(read.error().message.find("belongs to checkpoint 3, expected 4"), std::string::npos)
      << read.error().message;
  fs::rename(root_ / "checkpoints/ckpt-4", root_ / "checkpoints/best-model");  // a user may rename it
  EXPECT_TRUE(ReadManifest((root_ / "checkpoints/best-model").string()));
}

TEST(Manifest, AnInvalidChainIsRefused) {
  for (auto spoil : std::initializer_list<void (*)(Manifest*)>{
           [](Manifest* m) { std::swap(m->generations[0].id, m->generations[1].id); },
           [](Manifest* m) { m->generations[1].files = m->generations[0].files; }}) {
    Manifest m = Small();
    spoil(&m);
    const auto read = DecodeManifest(EncodeManifest(m), "m");
    ASSERT_FALSE(read);
    EXPECT_TRUE(read.error().message.starts_with("m: field generations")) << read.error().message;
  }
}

// The bytes are from a checkpoint of that version.
TEST(Manifest, Version1IsOneGeneration) {
  auto read = DecodeManifest(VersionOne(), "m");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->generations.size(), 1u);
  EXPECT_EQ(read->generations[0].id, CheckpointId(3));
  EXPECT_EQ(read->generations[0].files.at(0).name, "shard-0.rows");
  EXPECT_EQ(read->generations[0].files[0].rows, 2u);
  EXPECT_LT(read->generations[0].files[0].last, read->generations[0].files[0].first);
  EXPECT_EQ(read->generations[0].state_hash, 0x123456789abcdef0u);
  EXPECT_EQ(read->state_hash, 0x123456789abcdef0u);
  EXPECT_EQ(read->tables, Small().tables);
}

// One table of each rule of that time, with its own options, and one with 16-bit rows.
TEST(Manifest, OlderVersionsAreReadWithTheirTables) {
  const auto first = DecodeManifest(OldManifest(1), "m");
  ASSERT_TRUE(first) << first.error().message;
  for (const int version : {1, 2, 3}) {
    const auto read = DecodeManifest(OldManifest(version), "m");
    ASSERT_TRUE(read) << version << ": " << read.error().message;
    std::vector<std::string> kinds;
    for (const TableSpec& table : read->tables) kinds.push_back(table.optimizer.kind.value);
    const std::vector<std::string> all = {"sgd",     "momentum", "nesterov", "adagrad", "row_wise_adagrad",
                                          "rmsprop", "adam",     "adamw",    "ftrl"};
    ASSERT_GE(kinds.size(), all.size());
    EXPECT_TRUE(std::equal(all.begin(), all.end(), kinds.begin())) << version;
    EXPECT_EQ(OptionOf(read->tables[6].optimizer, "beta1"), 0.8f);
    EXPECT_EQ(OptionOf(read->tables[6].optimizer, "epsilon"), 1e-5f);
    EXPECT_TRUE(std::equal(all.begin(), all.end(), read->tables.begin(),
                           [](const auto& name, const TableSpec& table) { return table.name == name; }));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(read->tables[i], first->tables[i]) << version;
    const auto again = DecodeManifest(EncodeManifest(*read), "m");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->tables, read->tables) << version;
    EXPECT_EQ(EncodeManifest(*again), EncodeManifest(*read)) << version;
  }
}

// The checksum of version 3 covers the version.
TEST(Manifest, TablesOfAnotherVersionAreRefused) {
  const auto read = DecodeManifest(SealedBefore(EncodeManifest(Small()), 2), "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "m: field tables (in format version 2) is invalid");
}

// If damage changed version 2 to 1, the manifest would be one generation without a file: an empty model.
TEST(Manifest, ADamagedEnvelopeIsRefused) {
  const std::string bytes = EncodeManifest(Small());
  for (const std::string& good : {VersionOne(), OldManifest(1), OldManifest(2), OldManifest(3), bytes})
    ForEveryDamagedHeader(good, [](const std::string& damaged, std::size_t at) {
      const auto read = DecodeManifest(damaged, "m");
      ASSERT_FALSE(read) << "byte " << at << ": " << int(damaged[at]);
      EXPECT_TRUE(read.error().message.starts_with("m: ")) << read.error().message;
    });
}

TEST_F(ManifestFile, OnlyCompleteCheckpointsAreFound) {
  EXPECT_FALSE(FindNewestCheckpoint(root_.string()));
  EXPECT_FALSE(FindNewestCheckpoint((root_ / "nowhere").string()));
  auto missing = ReadManifest(directory_);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("not a complete checkpoint"), std::string::npos);
  ASSERT_TRUE(WriteManifest(directory_, Small()));
  fs::create_directories(root_ / "checkpoints/ckpt-12");  // incomplete
  fs::create_directories(root_ / "checkpoints/ckpt-x");
  EXPECT_EQ(FindNewestCheckpoint(root_.string()).value(), directory_);
  const auto all = ListCheckpoints(root_.string());
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(0).id, CheckpointId(3));
  EXPECT_TRUE(all->at(0).has_manifest);
  EXPECT_FALSE(all->at(1).has_manifest);
  AddFiles((root_ / "checkpoints/ckpt-12").string());
  ASSERT_TRUE(WriteManifest((root_ / "checkpoints/ckpt-12").string(), Small()));
  EXPECT_EQ(FindNewestCheckpoint(root_.string()).value(), (root_ / "checkpoints/ckpt-12").string());
}

TEST_F(ManifestFile, AManifestWithTheLargestNumberOfFilesIsReadBack) {
  Manifest m = Small();
  std::vector<CheckpointFile>& files = m.generations[0].files;
  const std::size_t others = m.generations[1].files.size();
  while (files.size() + others < limits::kManifestFilesMax)
    files.push_back({.name = std::to_string(files.size()), .bytes = 1});
  const auto read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->generations[0].files.size(), files.size());
  EXPECT_NE(WriteManifest(directory_, m).error().code, ErrorCode::kTooLarge);  // although the files are missing
  files.push_back({.name = "more", .bytes = 1});
  EXPECT_EQ(WriteManifest(directory_, m).error().code, ErrorCode::kTooLarge);
}

TEST(Manifest, ADirectoryIsNamedByItsNumber) {
  EXPECT_EQ(CheckpointIdOf("run/checkpoints/ckpt-17"), CheckpointId(17));
  EXPECT_EQ(CheckpointIdOf("run/checkpoints/ckpt-17/"), CheckpointId(17));
  EXPECT_EQ(CheckpointIdOf("ckpt-4611686018427387904"), CheckpointId(limits::kCheckpointIdMax));
  for (const char* name : {"ckpt-4611686018427387905", "ckpt-18446744073709551615", "ckpt-18446744073709551616",
                           "ckpt-003", "ckpt-0", "ckpt-", "ckpt--1", "ckpt-+1", "ckpt-1x", "x/..", "", "/"})
    EXPECT_FALSE(CheckpointIdOf(name)) << name;
  Manifest m = Small();
  m.id = CheckpointId(limits::kCheckpointIdMax);
  EXPECT_TRUE(DecodeManifest(EncodeManifest(m), "m"));
  m.id = CheckpointId(limits::kCheckpointIdMax + 1);
  EXPECT_FALSE(DecodeManifest(EncodeManifest(m), "m"));
}

TEST(Manifest, OtherFilesHaveAnotherNumber) {
  const std::uint64_t number = FilesHash(Small());
  EXPECT_EQ(FilesHash(Small()), number);
  for (std::size_t g = 0; g < 2; ++g) {
    Manifest m = Small();
    m.generations[g].files[0].crc32c ^= 1;
    EXPECT_NE(FilesHash(m), number);
    m = Small();
    m.generations[g].files[0].bytes ^= 1;
    EXPECT_NE(FilesHash(m), number);
  }
}

TEST(Manifest, TheErrorNamesAnInvalidTable) {
  Manifest m = Small();
  m.tables[0].optimizer.kind = "none";
  auto read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_FALSE(read);
  EXPECT_TRUE(read.error().message.starts_with(
      "m: field tables (table 'users': unknown optimizer 'none': expected one of sgd, momentum, "))
      << read.error().message;
  m = Small();
  m.tables[0].optimizer.options["beta3"] = 0.5f;
  read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "m: field tables (table 'users': unknown option of adam 'beta3': expected one of beta1, beta2, epsilon; "
            "the nearest is 'beta1') is invalid");
  m = Small();
  m.tables[0].dim = 0;
  EXPECT_FALSE(DecodeManifest(EncodeManifest(m), "m"));
}

// An empty list of structures may have any alignment; only structures that are read must be aligned.
TEST(Manifest, AGenerationWithoutTablesIsReadBackAtAnyAlignment) {
  for (std::size_t pad = 0; pad < 9; ++pad) {
    Manifest m = Small();
    m.generations.resize(1);
    for (std::size_t more = 0; more <= pad; ++more) m.generations.push_back({.id = CheckpointId(more + 2)});
    for (Generation& generation : m.generations) generation.tables.clear();
    const auto read = DecodeManifest(EncodeManifest(m), "MANIFEST");
    ASSERT_TRUE(read) << pad << ": " << read.error().message;
    EXPECT_EQ(read->generations.size(), pad + 2);
  }
}

}  // namespace
}  // namespace tarn
