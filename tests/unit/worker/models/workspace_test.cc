// Shows that a step's arrays are disjoint, that released memory is reused, and that a later step gets all its memory in
// one piece.
#include "worker/models/workspace.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/hash.h"

namespace tarn::worker {
namespace {

TEST(WorkspaceTest, ArraysAreDisjointAndAligned) {
  Workspace memory;
  SplitMix random(1);
  for (int step = 0; step < 3; ++step) {
    memory.Reset();
    std::vector<std::pair<std::byte*, std::size_t>> arrays;
    for (int i = 0; i < 200; ++i) {
      const std::size_t bytes = random.Below(100'000);
      auto* array = memory.Get<std::byte>(bytes);
      ASSERT_NE(array, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array) % 64, 0u);
      std::memset(array, i, bytes);
      arrays.emplace_back(array, bytes);
    }
    for (int i = 0; i < 200; ++i)
      for (std::size_t b = 0; b < arrays[i].second; ++b) ASSERT_EQ(int(arrays[i].first[b]), i);
  }
}

TEST(WorkspaceTest, ReleasedMemoryIsReused) {
  Workspace memory;
  auto* kept = memory.Get<float>(1000);
  std::fill_n(kept, 1000, 3.0f);
  const std::size_t before = memory.peak_bytes();
  for (int i = 0; i < 10; ++i) {
    const Workspace::Mark mark = memory.mark();
    std::fill_n(memory.Get<float>(1'000'000), 1'000'000, 4.0f);
    memory.Release(mark);
  }
  EXPECT_LE(memory.peak_bytes(), before + 4'000'256);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(kept[i], 3.0f);
}

TEST(WorkspaceTest, LaterStepsAllocateNothing) {
  Workspace memory;
  const auto step = [&] {
    memory.Reset();
    for (int i = 0; i < 50; ++i) memory.Get<float>(100'000);
    return memory.held_bytes();
  };
  step();
  const std::size_t once = step();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(step(), once);
  EXPECT_LE(once, memory.peak_bytes() + (std::size_t{1} << 20));
}

}  // namespace
}  // namespace tarn::worker
