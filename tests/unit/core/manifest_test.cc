// Shows that a manifest reads back as it was written, that damage anywhere in it or to its files is found and named,
// and that only whole checkpoints are found.
#include "core/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/file.h"

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
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.optimizer.learning_rate = 0.25f;
  spec.optimizer.schedule = {ScheduleKind::kCosine, 5, 100, 0.5f};
  spec.consistency = {ConsistencyMode::kSsp, 4, ApplyMode::kImmediate};
  spec.push_codec = ValueCodec::kBf16;
  m.tables.push_back(spec);
  m.files = {{"shard-0.rows", 5, 0xdeadbeef, 2}};
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

class ManifestFile : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("tarn_manifest_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "checkpoints/ckpt-3");
    directory_ = (root_ / "checkpoints/ckpt-3").string();
    std::ofstream(directory_ + "/shard-0.rows") << "12345";
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
  EXPECT_EQ(read->files[0].name, "shard-0.rows");
  EXPECT_EQ(read->resume_clock, m.resume_clock);
  EXPECT_EQ(read->best_checkpoint, m.best_checkpoint);
  EXPECT_EQ(EncodeManifest(*read), EncodeManifest(m));
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

TEST(Manifest, AnotherVersionIsNamed) {
  std::string bytes = EncodeManifest(Small());
  bytes[8] = 99;
  auto read = DecodeManifest(bytes, "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(read.error().message, "m: format version 99, expected 1");
}

TEST_F(ManifestFile, FilesMustBeThereAndWhole) {
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
  m.files[0].name = "../shard-0.rows";
  ASSERT_TRUE(WriteManifest(directory_, m));
  auto read = ReadManifest(directory_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
}

TEST_F(ManifestFile, OnlyWholeCheckpointsAreFound) {
  EXPECT_FALSE(FindNewestCheckpoint(root_.string()));
  EXPECT_FALSE(FindNewestCheckpoint((root_ / "nowhere").string()));
  auto missing = ReadManifest(directory_);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("not a whole checkpoint"), std::string::npos);
  ASSERT_TRUE(WriteManifest(directory_, Small()));
  fs::create_directories(root_ / "checkpoints/ckpt-12");  // begun, never finished
  fs::create_directories(root_ / "checkpoints/ckpt-x");
  EXPECT_EQ(FindNewestCheckpoint(root_.string()).value(), directory_);
  ASSERT_TRUE(WriteManifest((root_ / "checkpoints/ckpt-12").string(), Small()));
  EXPECT_EQ(FindNewestCheckpoint(root_.string()).value(), (root_ / "checkpoints/ckpt-12").string());
}

TEST(Manifest, ATableThatMakesNoSenseIsNamed) {
  Manifest m = Small();
  m.tables[0].optimizer.kind = static_cast<OptimizerKind>(200);
  auto read = DecodeManifest(EncodeManifest(m), "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "m: field tables (table.optimizer.kind: value 200, expected 0 to 8) makes no sense");
  m = Small();
  m.tables[0].dim = 0;
  EXPECT_FALSE(DecodeManifest(EncodeManifest(m), "m"));
}

}  // namespace
}  // namespace tarn
