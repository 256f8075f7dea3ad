// Shows that batches have the size of their lease, or the larger size of evaluation, and end with it; that a batch's
// memory can be reused; that a data set that the job does not name is an error; and that a random order covers every
// row once and is the same for every worker.
#include "worker/train/batch_reader.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/unit/worker/train/small_set.h"

namespace tarn::worker {
namespace {

TEST(BatchReader, MakesTheBatchesOfALease) {
  const Job job = MakeJob();
  const auto set = MakeSet(job);
  Trace trace;
  BatchReader reader(job, {set.get(), set.get(), nullptr}, PlannerOf(job), &trace);
  const struct {
    LeasePurpose purpose;
    std::uint64_t offset, lines;
    bool last;
  } cases[] = {{LeasePurpose::kTrain, 0, 8, false},
               {LeasePurpose::kTrain, 8, 8, false},
               {LeasePurpose::kTrain, 16, 4, true},
               {LeasePurpose::kValidate, 0, 20, true}};
  PreparedBatch batch;
  for (const auto& c : cases) {
    const LeaseGrant lease{.lease = LeaseId(3), .purpose = c.purpose, .first_row = 10, .rows = 20, .batch_rows = 8};
    const auto seconds = reader.Read(lease, c.offset, &batch);
    ASSERT_TRUE(seconds) << seconds.error().message;
    EXPECT_GT(seconds->read, 0);
    EXPECT_GT(seconds->plan, 0);
    EXPECT_EQ(batch.lines, c.lines);
    EXPECT_EQ(batch.last_of_lease, c.last);
    EXPECT_EQ(batch.after, (DataPosition{LeaseId(3), c.offset + c.lines}));
    Batch rows;
    ASSERT_TRUE(set->Read(10 + c.offset, c.lines, &rows));
    EXPECT_EQ(batch.batch.keys, rows.keys);
    ASSERT_EQ(batch.plans.size(), 2u);
    EXPECT_EQ(batch.plans[0].index.size(), rows.keys.size() + 1) << "with the bias";
    EXPECT_EQ(batch.plans[1].index.size(), rows.keys.size());
  }
}

TEST(BatchReader, RefusesADataSetThatTheJobDoesNotName) {
  const Job job = MakeJob();
  BatchReader reader(job, {}, PlannerOf(job), nullptr);
  PreparedBatch batch;
  const auto read = reader.Read({.lease = LeaseId(7), .purpose = LeasePurpose::kTest, .rows = 8}, 0, &batch);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(read.error().message.find("lease 7 is of data set 2"), std::string::npos) << read.error().message;
}

TEST(ReadRows, RandomOrderCoversEveryRowOnceAndIsTheSameEverywhere) {
  Job job = MakeJob();
  job.data.shuffle = true;
  const auto set = MakeSet(job);
  const auto order = [&](std::uint32_t epoch) {
    std::vector<Key> keys;
    Batch batch;
    for (std::uint64_t first = 0; first < kRows; first += 10) {
      EXPECT_TRUE(ReadRows(*set, job, LeasePurpose::kTrain, epoch, first, 10, &batch).has_value());
      for (std::size_t r = 0; r < batch.rows; ++r) keys.push_back(batch.keys[2 * r]);
    }
    return keys;
  };
  const std::vector<Key> first = order(0), again = order(0), second = order(1);
  EXPECT_EQ(std::set<Key>(first.begin(), first.end()).size(), kRows);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
  Batch plain, evaluated;
  ASSERT_TRUE(set->Read(0, kRows, &plain).has_value());
  ASSERT_TRUE(ReadRows(*set, job, LeasePurpose::kTest, 0, 0, kRows, &evaluated).has_value());
  EXPECT_EQ(plain.keys, evaluated.keys);  // evaluation keeps the file's order
}

}  // namespace
}  // namespace tarn::worker
