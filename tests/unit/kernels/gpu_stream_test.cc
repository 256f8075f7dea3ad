// Shows that any thread can use a GPU's stream, also streams of several GPUs, that bytes are copied within a GPU's
// memory, and that a reported error is cleared. Skipped, with the reason, if there is no GPU.
#include <span>
#include <thread>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/sort_scratch.h"
#include "tests/unit/kernels/gpu_test_util.h"

namespace tarn::kernels {
namespace {

// Work for one stream: one operation of each kind that calls CUDA.
struct Work {
  explicit Work(std::unique_ptr<Stream> on) : stream(std::move(on)) {}

  void GetMemory() {
    auto got = DeviceBuffer::Allocate(*stream, 2 * sizeof(float), "a test");
    ASSERT_TRUE(got.has_value()) << got.error().message;
    device = std::move(*got);
  }
  void GetPinnedMemory() {
    auto got = PinnedBuffer::Allocate(*stream, 2 * sizeof(float), "a test");
    ASSERT_TRUE(got.has_value()) << got.error().message;
    host = std::move(*got);
  }
  void AskSort() { EXPECT_TRUE(SortScratch::Make(*stream, 100).has_value()); }
  void RunKernel() { Fill(*stream, 1, 3.0f, device.as<float>()); }
  void Multiply() { Gemm(*stream, {1, 1, 1}, 2.0f, {x(), 1}, {x(), 1}, 0.0f, x() + 1, 1); }
  void Copy() { CopyToHost(*stream, x(), 2 * sizeof(float), host.data()); }
  void AskMemory() { EXPECT_GT(stream->free_bytes(), 0u); }
  void Finish() {
    const Status status = stream->Wait();
    ASSERT_TRUE(status.has_value()) << status.error().message;
    EXPECT_EQ(host.as<float>()[0], 3.0f);
    EXPECT_EQ(host.as<float>()[1], 18.0f);
  }
  float* x() { return device.as<float>(); }

  std::unique_ptr<Stream> stream;
  DeviceBuffer device;
  PinnedBuffer host;
};

// Executes each step on all streams before the next step.
void DoInTurns(std::span<Work> all) {
  for (const auto step : {&Work::GetMemory, &Work::GetPinnedMemory, &Work::AskSort, &Work::RunKernel, &Work::Multiply,
                          &Work::Copy, &Work::AskMemory, &Work::Finish})
    for (Work& work : all) (work.*step)();
}

class GpuStreamTest : public GpuFixture {
 protected:
  // A stream on each GPU.
  static std::vector<Work> WorkOnAll() {
    std::vector<Work> all;
    for (auto stream = Stream::Make(0); stream; stream = Stream::Make(int(all.size())))
      all.emplace_back(std::move(*stream));
    return all;
  }
};

TEST_F(GpuStreamTest, AThreadMayUseAStreamOfAnotherThread) {
  std::vector<std::thread> threads;
  for (std::vector<Work> all = WorkOnAll(); Work & work : all)
    threads.emplace_back([work = std::move(work)]() mutable { DoInTurns({&work, 1}); });  // also frees its memory
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GpuStreamTest, OneThreadMayUseStreamsOfAllGpus) {
  std::vector<Work> all = WorkOnAll();
  DoInTurns(all);
}

TEST_F(GpuStreamTest, CopiesWithinTheGpu) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7};
  DeviceBuffer from = Upload(bytes), to = Upload(std::vector<std::uint8_t>(7, 9));
  CopyOnDevice(stream(), from.data(), 0, nullptr);
  CopyOnDevice(stream(), from.as<std::uint8_t>() + 1, 5, to.as<std::uint8_t>() + 2);
  EXPECT_EQ(Download<std::uint8_t>(to), (std::vector<std::uint8_t>{9, 9, 2, 3, 4, 5, 6}));
}

TEST_F(GpuStreamTest, AReportedErrorIsCleared) {
  float x = 0;
  CopyToHost(stream(), nullptr, sizeof x, &x);
  const Status refused = stream().Wait();
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("copy to the host"), std::string::npos) << refused.error().message;
  DeviceBuffer device = Upload(std::vector<float>{1});
  Fill(stream(), 1, 3.0f, device.as<float>());
  EXPECT_EQ(Download<float>(device), std::vector<float>{3});
}

}  // namespace
}  // namespace tarn::kernels
