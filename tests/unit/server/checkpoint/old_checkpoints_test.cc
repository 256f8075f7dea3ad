// Shows that checkpoints of older manifest versions, written by the programs of that version, load bit for bit.
#include <gtest/gtest.h>

#include <string>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "server/checkpoint/rocksdb_checkpoint_reader.h"
#include "server/checkpoint/row_loader.h"
#include "server/store/store.h"

namespace tarn::server {
namespace {

std::string DirectoryOf(int version) {
  return std::string(TARN_OLD_CHECKPOINTS "/manifest-") + std::to_string(version) + "/ckpt-" +
         (version == 1 ? "1" : "2");
}

class OldCheckpoint : public testing::TestWithParam<int> {};

TEST_P(OldCheckpoint, LoadsTheSameBits) {
  const auto manifest = ReadManifest(DirectoryOf(GetParam()));
  ASSERT_TRUE(manifest) << manifest.error().message;
  ASSERT_TRUE(manifest->state_hash);
  StoreOptions options{.job_seed = 5, .partition_bits = manifest->partition_bits, .owned = {}};
  for (std::uint32_t p = 0; p < 1u << manifest->partition_bits; ++p) options.owned.push_back(PartitionId(p));
  Store rows(std::move(options));
  std::uint64_t expected_rows = 0;
  for (const TableSpec& table : manifest->tables) ASSERT_TRUE(rows.AddTable(table));
  for (const CheckpointTable& table : manifest->generations.back().tables) expected_rows += table.state_rows;
  RowLoader loader(&rows);
  const Status loaded = ReadCheckpoint(DirectoryOf(GetParam()), loader);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_GT(rows.row_count(), 9u);
  if (expected_rows != 0) {
    EXPECT_EQ(rows.row_count(), expected_rows);
  }
  EXPECT_EQ(*rows.StateHash(), *manifest->state_hash);
}

INSTANTIATE_TEST_SUITE_P(Manifest, OldCheckpoint, testing::Values(1, 2, 3));

}  // namespace
}  // namespace tarn::server
