// Shows that a record contains leases, begun batches, pushes and the first tick of each clock, appends to an existing
// file, and reports when it cannot be written.

#include "worker/train/record.h"

#include <gtest/gtest.h>

#include <string>

#include "core/file.h"
#include "tests/unit/worker/data/temp_dir.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kBytesMax = 4096;

TEST(Record, HoldsBatchesAndTheFirstTickOfAClock) {
  const tarn::testing::TempDir folder;
  const std::string path = folder.path() + "/record";
  {
    Record record;
    ASSERT_TRUE(record.Open(path).has_value());
    ASSERT_TRUE(record.Lease(Incarnation(7), LeaseId(12)).has_value());
    ASSERT_TRUE(record.Begin(Incarnation(7), 5).has_value());
    ASSERT_TRUE(record.Batch(Incarnation(7), {.epoch = 1, .first_row = 100, .rows = 50}, 20, 10, Clock(3)).has_value());
    for (std::uint64_t clock : {4, 4, 3, 6}) ASSERT_TRUE(record.Tick(Incarnation(7), Clock(clock)).has_value());
  }
  Record next;
  ASSERT_TRUE(next.Open(path).has_value());
  ASSERT_TRUE(next.Tick(Incarnation(8), Clock(1)).has_value());
  EXPECT_EQ(ReadFile(path, kBytesMax).value(),
            "lease 7 12\nbegin 7 5\nbatch 7 1 100 120 10 3\ntick 7 4\ntick 7 6\ntick 8 1\n");
}

TEST(Record, WritesNothingUnlessOpen) {
  Record record;
  EXPECT_FALSE(record.open());
  EXPECT_TRUE(record.Tick(Incarnation(1), Clock(1)).has_value());
}

TEST(Record, ReportsThatItCannotBeWritten) {
  Record missing, full;
  EXPECT_EQ(missing.Open("/nonexistent/record").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(full.Open("/dev/full").has_value());
  const Status status = full.Tick(Incarnation(1), Clock(1));
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("/dev/full"), std::string::npos);
}

}  // namespace
}  // namespace tarn::worker
