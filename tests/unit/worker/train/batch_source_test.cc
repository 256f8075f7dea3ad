// Shows that the reader's thread makes batches in the order of leases, ends them with the leases, and begins a
// taken-over lease at its position; that plans cover each batch's keys; and that an error of reading, or of a GPU that
// plans, is reported and stops the thread.

#include "worker/train/batch_source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "tests/unit/worker/train/small_set.h"

namespace tarn::worker {
namespace {

PreparedBatch Take(BatchSource* source) {
  for (int i = 0; i < 5'000; ++i) {
    if (auto batch = source->TryTake()) return std::move(*batch);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "no batch came";
  return {};
}

TEST(BatchSource, FollowsLeasesAndEndsBatchesWithThem) {
  const Job job = MakeJob();
  const auto set = MakeSet(job);
  std::atomic<int> wakes = 0;
  BatchSource source(job, {set.get(), nullptr, nullptr}, PlannerOf(job), nullptr, [&] { ++wakes; });
  source.AddLease({.lease = LeaseId(1), .first_row = 0, .rows = 20, .batch_rows = 8});
  source.AddLease({.lease = LeaseId(2), .first_row = 20, .rows = 16, .skip_rows = 8, .batch_rows = 8});
  const struct {
    std::uint64_t lease, lines, after;
    bool last;
  } expected[] = {{1, 8, 8, false}, {1, 8, 16, false}, {1, 4, 20, true}, {2, 8, 16, true}};
  for (const auto& e : expected) {
    PreparedBatch batch = Take(&source);
    EXPECT_EQ(batch.lease.lease, LeaseId(e.lease));
    EXPECT_EQ(batch.lines, e.lines);
    EXPECT_EQ(batch.batch.rows, e.lines);
    EXPECT_EQ(batch.after, (DataPosition{LeaseId(e.lease), e.after}));
    EXPECT_EQ(batch.last_of_lease, e.last);
    // The plan's index maps each occurrence to its key; only the linear table has the bias, as its last occurrence.
    ASSERT_EQ(batch.plans[0].index.size(), batch.batch.keys.size() + 1);
    ASSERT_EQ(batch.plans[1].index.size(), batch.batch.keys.size());
    for (std::size_t o = 0; o < batch.batch.keys.size(); ++o)
      EXPECT_EQ(batch.plans[1].keys[batch.plans[1].index[o]], batch.batch.keys[o]);
    EXPECT_EQ(batch.plans[0].keys[batch.plans[0].index.back()], kBiasKey);
    source.Recycle(std::move(batch));
  }
  EXPECT_EQ(source.leases_open(), 0u);
  EXPECT_FALSE(source.TryTake().has_value());
  EXPECT_GE(wakes.load(), 4);
}

TEST(BatchSource, TheLeaseDeterminesTheBatchSize) {
  const Job job = MakeJob();
  const auto set = MakeSet(job);
  BatchSource source(job, {set.get(), nullptr, nullptr}, PlannerOf(job), nullptr, [] {});
  source.AddLease({.lease = LeaseId(1), .first_row = 0, .rows = 16, .batch_rows = 8});
  source.AddLease({.lease = LeaseId(2), .first_row = 0, .rows = 16, .batch_rows = 16});
  for (const std::uint64_t lines : {8, 8, 16}) {
    PreparedBatch batch = Take(&source);
    EXPECT_EQ(batch.lines, lines);
    source.Recycle(std::move(batch));
  }
}

TEST(BatchSource, ReportsAnErrorOfReading) {
  const Job job = MakeJob();
  const auto set = MakeSet(job, 12);
  BatchSource source(job, {set.get(), nullptr, nullptr}, PlannerOf(job), nullptr, [] {});
  source.AddLease({.lease = LeaseId(1), .first_row = 0, .rows = 20, .batch_rows = 8});
  EXPECT_EQ(Take(&source).lines, 8u);
  for (int i = 0; i < 5'000 && !source.error(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(source.error().has_value());
  EXPECT_NE(source.error()->message.find("test:13"), std::string::npos) << source.error()->message;
}

TEST(BatchSource, ReportsThatTheGpuCannotPlan) {
  constexpr int kNoGpu = 1000;
  const Job job = MakeJob();
  const auto set = MakeSet(job);
  BatchSource source(job, {set.get(), nullptr, nullptr}, PlannerOf(job, kNoGpu), nullptr, [] {});
  source.AddLease({.lease = LeaseId(1), .first_row = 0, .rows = kRows, .batch_rows = 8});
  for (int i = 0; i < 5'000 && !source.error(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(source.error().has_value());
  EXPECT_EQ(source.error()->message.find("planning 16 keys: "), 0u) << source.error()->message;
}

TEST(BatchSource, StopsWhileFull) {
  const Job job = MakeJob();
  const auto set = MakeSet(job);
  auto source =
      std::make_unique<BatchSource>(job, DatasetSet{set.get(), nullptr, nullptr}, PlannerOf(job), nullptr, [] {});
  source->AddLease({.lease = LeaseId(1), .first_row = 0, .rows = kRows, .batch_rows = 8});
  Take(source.get());
  const auto stopped = std::async(std::launch::async, [&] { source.reset(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << "the destructor must not wait for what nobody takes";
}

}  // namespace
}  // namespace tarn::worker
