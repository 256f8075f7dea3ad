// Shows that recorded work is executed at each launch, with the contents that its arrays have then; that a graph can be
// recorded again; and that work which cannot be recorded does not change the stream. Skipped, with the reason, if there
// is no GPU.
#include "kernels/graph.h"

#include "kernels/device_gemm.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm_algorithms.h"
#include "kernels/segments.h"
#include "tests/unit/kernels/gpu_test_util.h"

namespace tarn::kernels {
namespace {

class GpuGraphTest : public GpuFixture {
 protected:
  // Expects that the stream still executes work.
  void ExpectUsable() {
    DeviceBuffer x = Upload(std::vector<float>{1, 2, 3});
    Scale(stream(), 3, 2.0f, x.as<float>());
    EXPECT_EQ(Download<float>(x), (std::vector<float>{2, 4, 6}));
  }
};

TEST_F(GpuGraphTest, NothingIsDoneUntilItIsLaunched) {
  DeviceBuffer x = Upload(std::vector<float>{1, -2, 3});
  Graph graph(&stream());
  ASSERT_TRUE(graph
                  .Record([&] {
                    Scale(stream(), 3, 2.0f, x.as<float>());
                    Add(stream(), 3, x.as<float>(), x.as<float>());
                  })
                  .has_value());
  EXPECT_EQ(Download<float>(x), (std::vector<float>{1, -2, 3}));
  graph.Launch();
  EXPECT_EQ(Download<float>(x), (std::vector<float>{4, -8, 12}));
  graph.Launch();
  graph.Launch();
  EXPECT_EQ(Download<float>(x), (std::vector<float>{64, -128, 192}));
}

TEST_F(GpuGraphTest, CopiesOfPinnedMemoryAreRecorded) {
  auto in = PinnedBuffer::Allocate(stream(), 8, "a test"), out = PinnedBuffer::Allocate(stream(), 8, "a test");
  ASSERT_TRUE(in && out);
  DeviceBuffer x = Upload(std::vector<float>{0, 0});
  Graph graph(&stream());
  ASSERT_TRUE(graph
                  .Record([&] {
                    CopyToDevice(stream(), in->data(), 8, x.data());
                    Relu(stream(), 2, x.as<float>());
                    CopyToHost(stream(), x.data(), 8, out->data());
                  })
                  .has_value());
  for (const float v : {1.0f, 2.0f}) {
    in->as<float>()[0] = v;
    in->as<float>()[1] = -v;
    graph.Launch();
    ASSERT_TRUE(stream().Wait().has_value());
    EXPECT_EQ(out->as<float>()[0], v);
    EXPECT_EQ(out->as<float>()[1], 0.0f);
  }
}

// The same operations with other sizes and arrays, then other operations, fewer ones and none.
TEST_F(GpuGraphTest, ARecordingReplacesThePreviousOne) {
  SplitMix random(1);
  Graph graph(&stream());
  for (const std::size_t n : {1000u, 7u, 100'000u}) {
    const std::vector<float> values = RandomFloats(n, random);
    DeviceBuffer x = Upload(values), y = Upload(values);
    const float factor = static_cast<float>(n);
    ASSERT_TRUE(graph.Record([&] { Scale(stream(), n, factor, x.as<float>()); }).has_value());
    graph.Launch();
    Scale(stream(), n, factor, y.as<float>());
    EXPECT_EQ(Download<float>(x), Download<float>(y)) << n;
    ASSERT_TRUE(graph
                    .Record([&] {
                      Relu(stream(), n, x.as<float>());
                      Add(stream(), n, y.as<float>(), x.as<float>());
                      Fill(stream(), n / 2, 3.0f, y.as<float>());
                    })
                    .has_value());
    graph.Launch();
    std::vector<float> expected = values;
    for (float& v : expected) v = std::max(v * factor, 0.0f) + v * factor;
    EXPECT_EQ(Download<float>(x), expected) << n;
    ASSERT_TRUE(graph.Record([] {}).has_value());
    graph.Launch();
    EXPECT_EQ(Download<float>(x), expected) << n;
  }
}

// The number of passes of a sort depends on its size.
TEST_F(GpuGraphTest, GroupingIsRecordedAgainForOtherSizes) {
  constexpr std::size_t kMax = 20'000;
  auto scratch = SortScratch::Make(stream(), kMax);
  auto segments = Segments::Make(stream(), {.occurrences = kMax, .rows = kMax, .dim = 1});
  ASSERT_TRUE(scratch && segments);
  SplitMix random(2);
  Graph graph(&stream());
  for (const std::size_t n : {10u, 5000u, 20'000u, 3u}) {
    DeviceBuffer inverse = Upload(std::vector<std::uint32_t>(n)), out = Upload(std::vector<float>(n));
    const auto work = [&] { GroupByRow(stream(), n, inverse.as<std::uint32_t>(), n, **scratch, **segments); };
    work();
    ASSERT_TRUE(graph.Record(work).has_value());
    for (int batch = 0; batch < 3; ++batch) {
      std::vector<std::uint32_t> rows(n);
      std::vector<float> counts(n);
      for (std::uint32_t& row : rows) {
        row = static_cast<std::uint32_t>(random.Below(n));
        counts[row] += 1;
      }
      Put(rows, inverse.data());
      Fill(stream(), n, 0.0f, out.as<float>());
      DeviceBuffer ones = Upload(std::vector<float>(n, 1.0f));
      graph.Launch();
      EmbeddingConcatBackward(stream(), n, 1, 1, ones.as<float>(), 1, **segments, out.as<float>());
      EXPECT_EQ(Download<float>(out), counts) << n;
    }
  }
}

TEST_F(GpuGraphTest, ProductsAreRecordedOnceTheyHaveRun) {
  const GemmShape shape{33, 20, 65};
  SplitMix random(3);
  DeviceBuffer a = Upload(RandomFloats(shape.m * shape.k, random)), b = Upload(RandomFloats(shape.k * shape.n, random));
  DeviceBuffer c = Upload(Poisoned(shape.m * shape.n)), d = Upload(Poisoned(shape.m * shape.n));
  const auto work = [&](DeviceBuffer& out) {
    Gemm(stream(), shape, 1.0f, {a.as<float>(), shape.k}, {b.as<float>(), shape.n}, 0.0f, out.as<float>(), shape.n);
    GemmBf16(stream(), shape, {a.as<float>(), shape.k}, {b.as<float>(), shape.n}, out.as<float>(), shape.n);
  };
  Graph graph(&stream());
  const Status early = graph.Record([&] { work(c); });
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, ErrorCode::kUnavailable) << early.error().message;
  EXPECT_NE(early.error().message.find("of a new shape"), std::string::npos) << early.error().message;
  EXPECT_TRUE(stream().Wait().has_value()) << "the error was the recording's";
  work(d);
  const Status recorded = graph.Record([&] { work(c); });
  ASSERT_TRUE(recorded.has_value()) << recorded.error().message;
  graph.Launch();
  EXPECT_EQ(Download<float>(c), Download<float>(d));
}

// A product that has run once, or that a recording has requested, is measured when it runs again.
TEST_F(GpuGraphTest, ProductsAreRecordedOnceTheyHaveBeenMeasured) {
  const GemmShape shape{33, 20, 65};
  SplitMix random(4);
  DeviceBuffer a = Upload(RandomFloats(shape.m * shape.k, random)), b = Upload(RandomFloats(shape.k * shape.n, random));
  DeviceBuffer c = Upload(Poisoned(shape.m * shape.n)), d = Upload(Poisoned(shape.m * shape.n));
  GemmAlgorithms algorithms = MakeGemmAlgorithms(stream());
  UseGemmAlgorithms(stream(), &algorithms);
  const auto work = [&](DeviceBuffer& out) {
    Gemm(stream(), shape, 1.0f, {a.as<float>(), shape.k}, {b.as<float>(), shape.n}, 0.0f, out.as<float>(), shape.n);
  };
  work(d);
  Graph graph(&stream());
  for (int i = 0; i < 2; ++i) {
    const Status early = graph.Record([&] { work(c); });
    ASSERT_FALSE(early.has_value());
    EXPECT_EQ(early.error().code, ErrorCode::kUnavailable) << early.error().message;
    EXPECT_NE(early.error().message.find("has yet to be measured"), std::string::npos) << early.error().message;
    EXPECT_TRUE(stream().Wait().has_value()) << "the error was the recording's";
  }
  EXPECT_EQ(algorithms.size(), 0u);
  DeviceBuffer moved = Upload(std::vector<float>(1));  // so far only the recording has requested the product again
  work(d);
  EXPECT_EQ(algorithms.size(), 1u);
  const Status recorded = graph.Record([&] { work(c); });
  EXPECT_TRUE(recorded.has_value()) << recorded.error().message;
  graph.Launch();
  EXPECT_EQ(Download<float>(c), Download<float>(d));
  UseGemmAlgorithms(stream(), nullptr);
}

TEST_F(GpuGraphTest, WorkThatCannotBeRecordedDoesNotChangeTheStream) {
  DeviceBuffer x = Upload(std::vector<float>{1, 2, 3});
  const auto doubled = [&] { Scale(stream(), 3, 2.0f, x.as<float>()); };
  Graph graph(&stream());
  const std::function<void()> works[] = {
      [&] { EXPECT_FALSE(DeviceBuffer::Allocate(stream(), 100, "a test").has_value()); },
      [&] { EXPECT_FALSE(PinnedBuffer::Allocate(stream(), 100, "a test").has_value()); },
      [&] { EXPECT_FALSE(stream().Wait().has_value()); },
  };
  for (const auto& work : works) {
    const Status recorded = graph.Record([&] {
      doubled();
      work();
      doubled();
    });
    ASSERT_FALSE(recorded.has_value());
    EXPECT_EQ(recorded.error().code, ErrorCode::kUnavailable) << recorded.error().message;
    EXPECT_TRUE(stream().Wait().has_value());
    EXPECT_EQ(Download<float>(x), (std::vector<float>{1, 2, 3}));
    ExpectUsable();
    const Status again = graph.Record(doubled);
    EXPECT_TRUE(again.has_value()) << again.error().message;
  }
  graph.Launch();
  EXPECT_EQ(Download<float>(x), (std::vector<float>{2, 4, 6}));
}

TEST_F(GpuGraphTest, AnErrorWhileRecordingIsNotAnErrorOfTheStream) {
  auto host = PinnedBuffer::Allocate(stream(), 12, "a test");
  ASSERT_TRUE(host.has_value());
  Graph graph(&stream());
  const Status recorded = graph.Record([&] { CopyToDevice(stream(), host->data(), 12, nullptr); });
  ASSERT_FALSE(recorded.has_value());
  EXPECT_EQ(recorded.error().code, ErrorCode::kUnsupported) << recorded.error().message;
  EXPECT_TRUE(stream().Wait().has_value());
  ExpectUsable();
}

TEST_F(GpuGraphTest, AnEarlierErrorStaysAnErrorOfTheStream) {
  auto host = PinnedBuffer::Allocate(stream(), 12, "a test");
  ASSERT_TRUE(host.has_value());
  DeviceBuffer x = Upload(std::vector<float>{1, 2, 3});
  CopyToDevice(stream(), host->data(), 12, nullptr);
  Graph graph(&stream());
  const Status recorded = graph.Record([&] { Relu(stream(), 3, x.as<float>()); });
  ASSERT_FALSE(recorded.has_value());
  EXPECT_EQ(recorded.error().code, ErrorCode::kUnavailable);
  const Status waited = stream().Wait();
  ASSERT_FALSE(waited.has_value());
  EXPECT_NE(waited.error().message.find("copy to the device"), std::string::npos) << waited.error().message;
  ExpectUsable();
}

TEST_F(GpuGraphTest, TheVersionOfMemoryGrowsWithAllocationsAndFrees) {
  const std::uint64_t before = MemoryVersion(stream());
  std::uint64_t held = 0;
  {
    auto buffer = DeviceBuffer::Allocate(stream(), 100, "a test");
    ASSERT_TRUE(buffer.has_value());
    held = MemoryVersion(stream());
    EXPECT_GT(held, before);
    Fill(stream(), 25, 1.0f, buffer->as<float>());
    EXPECT_EQ(MemoryVersion(stream()), held);
  }
  EXPECT_GT(MemoryVersion(stream()), held);
  {
    auto pinned = PinnedBuffer::Allocate(stream(), 100, "a test");
    ASSERT_TRUE(pinned.has_value());
    PinnedBuffer moved = std::move(*pinned);
    held = MemoryVersion(stream());
  }
  EXPECT_EQ(MemoryVersion(stream()), held + 1);
}

TEST_F(GpuGraphTest, AStreamWithoutProductsAllocatesNoMemoryForThem) {
  DeviceBuffer x = Upload(std::vector<float>{2, 3});
  const std::uint64_t before = MemoryVersion(stream());
  Relu(stream(), 2, x.as<float>());
  EXPECT_EQ(MemoryVersion(stream()), before);
  Gemm(stream(), {1, 1, 1}, 1.0f, {x.as<float>(), 1}, {x.as<float>(), 1}, 0.0f, x.as<float>() + 1, 1);
  EXPECT_EQ(MemoryVersion(stream()), before + 1);
  EXPECT_EQ(Download<float>(x), (std::vector<float>{2, 4}));
}

}  // namespace
}  // namespace tarn::kernels
