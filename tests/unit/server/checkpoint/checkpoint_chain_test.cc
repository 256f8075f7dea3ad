// Shows that the generations of an incremental checkpoint together contain the state at the cut, bit for bit, whatever
// rows changed or were removed, in any number of files, and loaded by any number of shards. Each directory is complete
// by itself.
#include <algorithm>
#include <fstream>

#include "server/checkpoint/checkpoint_base.h"
#include "tests/unit/server/checkpoint/chain_fixture.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

class CheckpointChainTest : public ChainFixture {
 protected:
  // Loads the checkpoint into `shards` shards of 2^bits partitions; the sum of their hashes must be the state's hash.
  void ExpectRestoredOnto(std::uint64_t id, std::uint32_t shards, std::uint32_t bits) {
    std::uint64_t hash = 0;
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      StoreOptions options{.job_seed = kChainSeed, .partition_bits = bits, .owned = {}};
      for (std::uint32_t p = 0; p < 1u << bits; ++p)
        if (p % shards == shard) options.owned.push_back(PartitionId(p));
      Store rows(std::move(options));
      for (const TableSpec& table : tables_) {
        const Status added = rows.AddTable(table);
        ASSERT_TRUE(added) << added.error().message;
      }
      RowLoader loader(&rows);
      const Status status = ReadCheckpoint(Directory(id), loader);
      ASSERT_TRUE(status) << status.error().message;
      hash += rows.StateHash().value();
    }
    EXPECT_EQ(hash, HashOfState()) << shards << " shards, " << bits << " bits";
  }
  // A store creates all rows of a dense partition at once, so all of them are in the first checkpoint.
  void FillDense(SplitMix* random) {
    const TableSpec& dense = tables_.back();
    for (Key key = 0; key < dense.rows; ++key) {
      auto& row = state_[dense.id].rows[key];
      row.resize(RowWords(dense));
      for (std::uint32_t& word : row) word = std::uint32_t(random->Next());
    }
  }
};

TEST_F(CheckpointChainTest, RandomChainsHoldTheStateBitForBit) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SplitMix random(seed);
    fs::remove_all(root_ / "checkpoints");
    fs::create_directories(root_ / "checkpoints");
    state_.clear();
    changed_.clear();
    for (const TableSpec& table : tables_) state_[table.id];
    bits_ = std::uint32_t(random.Below(5));
    run_bytes_ = random.Chance(0.5) ? limits::kCheckpointRunBytes : 1 + random.Below(2000);
    FillDense(&random);
    std::uint64_t base = 0;
    for (std::uint64_t id = 1; id <= 6; ++id) {
      Change(&random, random.Below(300));
      if (random.Chance(0.15)) base = 0;
      const std::uint32_t shards = std::uint32_t(1 + random.Below(std::min(4u, 1u << bits_)));
      const Status cut = Cut(id, base, shards, &random);
      ASSERT_TRUE(cut) << seed << ": " << cut.error().message;
      // Removes the base: a newer checkpoint does not need its directory.
      if (base != 0 && random.Chance(0.5)) fs::remove_all(Directory(base));
      const auto state = Read(id);
      ASSERT_TRUE(state) << seed << ": " << state.error().message;
      ASSERT_EQ(*state, state_) << seed << " " << id;
      base = id;
    }
    const std::uint32_t bits = random.Chance(0.5) ? bits_ : std::uint32_t(random.Below(7));
    ExpectRestoredOnto(6, std::uint32_t(1 + random.Below(std::min(8u, 1u << bits))), bits);
  }
}

TEST_F(CheckpointChainTest, APartitionLargerThanTheWritersBufferTakesSeveralFiles) {
  SplitMix random(4);
  bits_ = 1;
  run_bytes_ = 1000;
  Change(&random, 2000);
  ASSERT_TRUE(Cut(1, 0, 1, &random));
  EXPECT_GT(manifests_[1].generations[0].files.size(), 5u);
  EXPECT_EQ(Read(1).value(), state_);
}

TEST_F(CheckpointChainTest, TheBasesFilesAreLinkedNotCopied) {
  SplitMix random(5);
  Change(&random, 500);
  ASSERT_TRUE(Cut(1, 0, 2, &random));
  Change(&random, 5);
  ASSERT_TRUE(Cut(2, 1, 2, &random));
  for (const CheckpointFile& file : manifests_[1].generations[0].files)
    EXPECT_EQ(fs::exists(fs::path(Directory(2)) / file.name), file.seen == 0) << file.name;
  for (const CheckpointFile& file : manifests_[2].generations[0].files)
    EXPECT_EQ(fs::hard_link_count(fs::path(Directory(2)) / file.name), 2u);
  EXPECT_LT(manifests_[2].generations[1].bytes(), manifests_[2].generations[0].bytes() / 3);
}

TEST_F(CheckpointChainTest, PartialFilesOfADeadShardAreReplaced) {
  SplitMix random(6);
  Change(&random, 300);
  ASSERT_TRUE(Cut(1, 0, 2, &random));
  Change(&random, 30);
  fs::create_directories(Directory(2));
  for (const CheckpointFile& file : manifests_[1].generations[0].files)
    std::ofstream((fs::path(Directory(2)) / file.name).string()) << "half";
  std::ofstream((fs::path(Directory(2)) / "2-shard-0.sst").string()) << "half";
  ASSERT_TRUE(Cut(2, 1, 2, &random));
  EXPECT_EQ(Read(2).value(), state_);
  EXPECT_TRUE(ReadManifest(Directory(1)));  // the base's files are unchanged
}

TEST_F(CheckpointChainTest, AMissingBaseFileIsAnErrorThatNamesTheFile) {
  SplitMix random(7);
  Change(&random, 300);
  ASSERT_TRUE(Cut(1, 0, 1, &random));
  Change(&random, 30);
  const std::string file = Directory(1) + "/1-shard-0.sst";
  fs::rename(file, file + ".away");
  auto part = WritePart(2, 1, 0, 1, &random);
  EXPECT_EQ(part.code, ErrorCode::kNotFound);
  EXPECT_NE(part.message.find(file), std::string::npos) << part.message;
  fs::rename(file + ".away", file);
  fs::rename(Directory(1) + "/MANIFEST", Directory(1) + "/MANIFEST.away");
  EXPECT_EQ(WritePart(2, 1, 0, 1, &random).code, ErrorCode::kNotFound);
  fs::rename(Directory(1) + "/MANIFEST.away", Directory(1) + "/MANIFEST");
  EXPECT_EQ(WritePart(2, 1, 0, 1, &random).code, ErrorCode::kOk);
}

TEST_F(CheckpointChainTest, AShardReadsTheFilesOfItsPartitionsOnly) {
  SplitMix random(8);
  Change(&random, 600);
  ASSERT_TRUE(Cut(1, 0, 2, &random));
  std::fstream(Directory(1) + "/1-shard-1.sst", std::ios::in | std::ios::out | std::ios::binary).seekp(40).put('!');
  struct Half : StateSink {
    explicit Half(bool lower) : lower_half(lower) {}
    bool Wants(PartitionId partition, std::uint32_t bits) const override {
      return (partition.value < 1u << (bits - 1)) == lower_half;
    }
    bool lower_half;
  } lower(true), upper(false);
  EXPECT_TRUE(ReadCheckpoint(Directory(1), lower));
  EXPECT_EQ(ReadCheckpoint(Directory(1), upper).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace tarn::server
