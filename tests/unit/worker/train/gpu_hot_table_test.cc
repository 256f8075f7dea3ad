// Shows that hot rows in a GPU's memory behave like those in the host's: the same rows are missing, the same are read,
// with the same staleness, for batches of which several are in flight. Skipped, with the reason, if there is no GPU.
#include <deque>

#include "core/hash.h"
#include "tests/unit/kernels/gpu_test_util.h"
#include "worker/train/device_planner.h"
#include "worker/train/hot_table.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kDim = 12;
constexpr std::uint64_t kBound = 6;

class GpuHotTableTest : public kernels::GpuFixture {
 protected:
  struct InFlight {
    Plan plan;
    HotBatch host, device;
  };

  void Make(const HotTableOptions& options) {
    spec_.name = "users";
    spec_.dim = kDim;
    spec_.consistency = {ConsistencyMode::kSsp, kBound, ApplyMode::kImmediate};
    host_.reset();
    device_.reset();
    host_place_ = MakeHostPlace();
    auto place = MakeDevicePlace(0);
    ASSERT_TRUE(place.has_value()) << place.error().message;
    device_place_ = std::move(*place);
    host_ = Table(host_place_.get(), options);
    device_ = Table(device_place_.get(), options);
  }

  std::unique_ptr<HotTable> Table(RowPlace* place, const HotTableOptions& options) {
    auto table = HotTable::Make(place, spec_, options);
    EXPECT_TRUE(table.has_value()) << table.error().message;
    return std::move(*table);
  }

  void Look(const std::vector<Key>& keys, Clock use, SplitMix& random) {
    InFlight& batch = batches_.emplace_back();
    const Positioner positioner(spec_, 5);
    if (device_planner_ == nullptr) {
      Planner(3).Make(TableId(1), kDim, positioner, keys, &batch.plan);
    } else {
      ASSERT_TRUE(device_planner_->Bring(keys));
      ASSERT_TRUE(device_planner_->Make(TableId(1), kDim, positioner, keys.size(), &batch.plan));
    }
    EXPECT_TRUE(host_->Look(batch.plan, use, &batch.host));
    EXPECT_TRUE(device_->Look(batch.plan, use, &batch.device));
    ASSERT_EQ(batch.device.missing().keys, batch.host.missing().keys);
    if (batch.host.missing().keys.empty()) return;
    const auto values = kernels::RandomFloats(batch.host.missing().keys.size() * kDim, random);
    const Clock version(use.value - std::min(use.value, random.Below(kBound + 1)));
    EXPECT_TRUE(host_->Arrive(Buffer::CopyOf(std::span(values)), version, &batch.host));
    EXPECT_TRUE(device_->Arrive(Buffer::CopyOf(std::span(values)), version, &batch.device));
  }

  void Finish() {
    InFlight& batch = batches_.front();
    const auto here = host_->Read(&batch.host), there = device_->Read(&batch.device);
    ASSERT_TRUE(here && there);
    device_place_->HandOver(&stream());
    const std::vector<float> rows = Fetch(*there, batch.plan.keys.size() * kDim);
    EXPECT_TRUE(kernels::SameBits(rows, {*here, *here + rows.size()}));
    if (device_planner_ != nullptr) PlanAnother(&batch.plan);
    host_->Push(batch.host);
    device_->Push(batch.device);
    host_->End(&batch.host);
    device_->End(&batch.device);
    EXPECT_EQ(batch.device.staleness(), batch.host.staleness());
    batches_.pop_front();
  }

  // Plans another batch, which overwrites the planner's memory on the GPU, before this batch is pushed.
  void PlanAnother(Plan* plan) {
    std::vector<Key> keys = plan->keys;
    for (Key& key : keys) key = ~key;
    device_planner_->TakeBack(plan);
    Plan another;
    EXPECT_TRUE(device_planner_->Bring(keys));
    EXPECT_TRUE(device_planner_->Make(TableId(1), kDim, Positioner(spec_, 5), keys.size(), &another));
    device_planner_->TakeBack(&another);
  }

  void RunBatches(SplitMix& random) {
    for (std::uint64_t clock = 0; clock < 200; ++clock) {
      std::vector<Key> keys(random.Below(600));
      for (Key& key : keys) key = random.Below(random.Chance(0.5) ? 200 : 5000);
      ASSERT_NO_FATAL_FAILURE(Look(keys, Clock(clock), random));
      if (random.Chance(0.02)) host_->Clear(), device_->Clear();
      if (batches_.size() < 3) continue;
      ASSERT_NO_FATAL_FAILURE(Finish());
    }
    while (!batches_.empty()) ASSERT_NO_FATAL_FAILURE(Finish());
  }

  TableSpec spec_;
  std::unique_ptr<RowPlace> host_place_, device_place_;
  std::unique_ptr<HotTable> host_, device_;
  std::unique_ptr<DevicePlanner> device_planner_;  // null: the host plans
  std::deque<InFlight> batches_;
};

TEST_F(GpuHotTableTest, RandomBatchesInFlight) {
  SplitMix random(3);
  for (const OwnPushes own : {OwnPushes::kBounded, OwnPushes::kSeen})
    for (const std::uint32_t keys_at_once : {100u, 1u << 16}) {
      Make({.keep = {.rows = 1024}, .own_pushes = own, .keys_at_once = keys_at_once});
      RunBatches(random);
    }
}

// The GPU plans, so the keys are already in its memory.
TEST_F(GpuHotTableTest, PlansOfTheGpuFindTheSameRows) {
  SplitMix random(4);
  auto planner = MakeDevicePlanner(0, 3);
  ASSERT_TRUE(planner.has_value()) << planner.error().message;
  device_planner_ = std::move(*planner);
  for (const std::uint32_t keys_at_once : {100u, 1u << 16}) {
    Make({.keep = {.rows = 1024}, .own_pushes = OwnPushes::kSeen, .keys_at_once = keys_at_once});
    RunBatches(random);
  }
}

}  // namespace
}  // namespace tarn::worker
