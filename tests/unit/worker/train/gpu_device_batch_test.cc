// Shows that the columns of a batch are copied to the GPU, also if the next batch is larger or has no weights. Skipped,
// with the reason, if there is no GPU.
#include "tests/unit/kernels/gpu_test_util.h"
#include "worker/train/device_batch.h"

namespace tarn::worker {
namespace {

class GpuDeviceBatchTest : public kernels::GpuFixture {};

Batch MakeBatch(std::size_t rows, bool weighted) {
  Batch batch;
  batch.rows = rows;
  batch.dense_columns = 2;
  batch.offsets = {0};
  for (std::size_t r = 0; r < rows; ++r) {
    batch.labels.push_back(float(r % 2));
    batch.dense.insert(batch.dense.end(), {float(r), float(r) + 0.5f});
    batch.keys.push_back(r);
    batch.offsets.push_back(static_cast<std::uint32_t>(r + 1));
    if (weighted) batch.weights.push_back(float(r) * 2);
  }
  return batch;
}

TEST_F(GpuDeviceBatchTest, ColumnsReachTheGpu) {
  DeviceBatch placed;
  for (const std::size_t rows : {3, 200, 5})
    for (const bool weighted : {true, false}) {
      const Batch batch = MakeBatch(rows, weighted);
      ASSERT_TRUE(placed.Bring(stream(), batch));
      const BatchView& view = placed.view();
      EXPECT_EQ(view.rows, rows);
      EXPECT_EQ(view.keys, rows);
      EXPECT_EQ(Fetch(view.labels, rows), batch.labels);
      EXPECT_EQ(Fetch(view.dense, 2 * rows), batch.dense);
      EXPECT_EQ(Fetch(view.offsets, rows + 1), batch.offsets);
      ASSERT_EQ(view.weights != nullptr, weighted);
      if (weighted) {
        EXPECT_EQ(Fetch(view.weights, rows), batch.weights);
      }
    }
}

}  // namespace
}  // namespace tarn::worker
