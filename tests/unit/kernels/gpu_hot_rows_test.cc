// Shows that the hot-row cache in a GPU's memory has the same slots, misses and rows as the one in the host's memory,
// call by call. Skipped, with the reason, if there is no GPU.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <set>

#include "kernels/hot_rows.h"
#include "tests/unit/kernels/gpu_test_util.h"

namespace tarn::kernels {
namespace {

class GpuHotRowsTest : public GpuFixture {
 protected:
  struct Batch {
    std::vector<Key> keys;
    Clock least;
    std::vector<std::uint32_t> slots, missing;
    DeviceBuffer d_keys, d_slots, d_missing;
  };

  void Make(const HotRowsOptions& options) {
    dim_ = options.dim;
    host_ = MakeHotRows(options);
    auto device = MakeHotRows(stream(), options);
    ASSERT_TRUE(device.has_value()) << device.error().message;
    device_ = std::move(*device);
    ASSERT_EQ(device_->capacity(), host_->capacity());
  }

  Batch Start(std::vector<Key> keys, Clock least) {
    const std::size_t n = keys.size();
    Batch b{.keys = std::move(keys), .least = least};
    b.slots.assign(n, 0xabcd), b.missing.assign(n, 0xabcd);
    b.d_keys = Upload(b.keys), b.d_slots = Upload(b.slots), b.d_missing = Upload(b.missing);
    DeviceBuffer d_count = Upload(std::vector<std::uint32_t>{0xabcd});
    std::uint32_t count = 0;
    host_->Find(n, b.keys.data(), least, b.slots.data(), b.missing.data(), &count);
    device_->Find(n, b.d_keys.as<Key>(), least, b.d_slots.as<std::uint32_t>(), b.d_missing.as<std::uint32_t>(),
                  d_count.as<std::uint32_t>());
    EXPECT_EQ(Download<std::uint32_t>(d_count), std::vector<std::uint32_t>{count});
    EXPECT_EQ(Download<std::uint32_t>(b.d_slots), b.slots);
    EXPECT_EQ(Download<std::uint32_t>(b.d_missing), b.missing);
    b.missing.resize(count);
    host_->Insert(n, b.keys.data(), least, b.slots.data());
    device_->Insert(n, b.d_keys.as<Key>(), least, b.d_slots.as<std::uint32_t>());
    EXPECT_EQ(Download<std::uint32_t>(b.d_slots), b.slots);
    return b;
  }

  // Fills, compares all rows that the batch has, and ends it.
  void Finish(Batch b, SplitMix& random) {
    const std::size_t shift = random.Below(2);
    const std::vector<float> rows = RandomFloats(b.missing.size() * dim_ + shift, random);
    DeviceBuffer d_rows = Upload(rows);
    const Clock version(b.least.value + random.Below(2));
    host_->Fill(b.missing.size(), b.missing.data(), b.slots.data(), rows.data() + shift, version);
    device_->Fill(b.missing.size(), b.d_missing.as<std::uint32_t>(), b.d_slots.as<std::uint32_t>(),
                  d_rows.as<float>() + shift, version);
    for (const std::size_t offset : {0, 1}) {  // rows on 16 bytes, where their width allows it, and not
      std::vector<float> out = Poisoned(b.keys.size() * dim_ + offset);
      DeviceBuffer d_out = Upload(out);
      host_->Read(b.keys.size(), b.slots.data(), out.data() + offset);
      device_->Read(b.keys.size(), b.d_slots.as<std::uint32_t>(), d_out.as<float>() + offset);
      EXPECT_TRUE(SameBits(Download<float>(d_out), out));
    }
    std::uint64_t oldest = 0;
    DeviceBuffer d_oldest = Upload(std::vector<std::uint64_t>{7});
    host_->Oldest(b.keys.size(), b.slots.data(), &oldest);
    device_->Oldest(b.keys.size(), b.d_slots.as<std::uint32_t>(), d_oldest.as<std::uint64_t>());
    EXPECT_EQ(Download<std::uint64_t>(d_oldest), std::vector<std::uint64_t>{oldest});
    host_->Unpin(b.keys.size(), b.slots.data());
    device_->Unpin(b.keys.size(), b.d_slots.as<std::uint32_t>());
  }

  void Evict(const std::vector<Key>& keys) {
    DeviceBuffer d_keys = Upload(keys);
    host_->Evict(keys.size(), keys.data());
    device_->Evict(keys.size(), d_keys.as<Key>());
  }

  std::uint32_t dim_ = 0;
  std::unique_ptr<HotRows> host_, device_;
};

std::vector<Key> DistinctKeys(std::size_t n, Key bound, SplitMix& random) {
  std::set<Key> keys;
  while (keys.size() < n) keys.insert(random.Below(bound));
  std::vector<Key> list(keys.begin(), keys.end());
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random.Below(i)]);
  return list;
}

TEST_F(GpuHotRowsTest, RandomBatchesInFlight) {
  SplitMix random(1);
  for (const HotScore score : {HotScore::kLru, HotScore::kLfu})
    for (const auto& [rows, dim] :
         {std::pair{std::uint64_t{128}, 1u}, {128, 3u}, {3 * 128, 8u}, {5 * 128, 130u}, {1000 * 128, 64u}}) {
      Make({.dim = dim, .rows = rows, .batch_keys_max = 5000, .score = score});
      std::deque<Batch> batches;
      for (std::uint64_t clock = 0; clock < 60; ++clock) {
        const std::size_t n = random.Chance(0.1) ? 0 : random.Below(std::min<std::uint64_t>(rows, 4000)) + 1;
        batches.push_back(Start(DistinctKeys(n, 2 * rows, random), Clock(clock < 4 ? 0 : clock - 4)));
        if (random.Chance(0.2)) Evict(DistinctKeys(rows / 8, 2 * rows, random));
        if (random.Chance(0.1)) host_->Age(), device_->Age();
        if (random.Chance(0.03)) host_->Clear(), device_->Clear();
        if (batches.size() > 3) {
          Finish(std::move(batches.front()), random);
          batches.pop_front();
        }
      }
      for (Batch& batch : batches) Finish(std::move(batch), random);
      device_.reset();
      ASSERT_TRUE(stream().Wait().has_value());
    }
}

// In a child process: the failure affects all uses of the GPU in the process.
TEST(GpuHotRowsDeathTest, UnpinningARowThatIsNotPinnedFails) {
  if (const auto stream = Stream::Make(); !stream) GTEST_SKIP() << stream.error().message;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto misuse = [] {
    const auto stream = Stream::Make();
    const auto cache = MakeHotRows(**stream, {.dim = 1, .rows = 128, .batch_keys_max = 1});
    auto slot = DeviceBuffer::Allocate(**stream, sizeof(std::uint32_t), "a slot");
    (*cache)->Unpin(0, slot->as<std::uint32_t>());
    const std::uint32_t five = 5;
    PinnedCopies copies(stream->get());
    copies.ToDevice(&five, sizeof five, slot->data());
    if (::testing::Test::HasFailure()) std::_Exit(1);
    (*cache)->Unpin(1, slot->as<std::uint32_t>());
    const Status status = (*stream)->Wait();
    if (status) std::_Exit(0);
    std::fputs(status.error().message.c_str(), stderr);
    std::_Exit(3);
  };
  EXPECT_EXIT(misuse(), ::testing::ExitedWithCode(3), "GPU 0: ");
}

TEST_F(GpuHotRowsTest, TheErrorForTooLittleMemorySaysWhatWouldFit) {
  const auto cache = MakeHotRows(stream(), {.dim = 1 << 20, .rows = 1u << 30, .batch_keys_max = 1});
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().code, ErrorCode::kIo);
  EXPECT_NE(cache.error().message.find("the hot-row cache's rows: 4503599627370496 bytes asked for"), std::string::npos)
      << cache.error().message;
  EXPECT_NE(cache.error().message.find("1073741824 rows were asked for, about"), std::string::npos)
      << cache.error().message;
}

}  // namespace
}  // namespace tarn::kernels
