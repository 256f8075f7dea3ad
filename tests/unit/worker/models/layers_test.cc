// Shows that a stack of layers reads rows and inputs no more after ForwardAgain: recomputing once is enough.
#include "worker/models/layers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/hash.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kRows = 4;
constexpr std::uint32_t kIn = 5, kOut = 3;

std::vector<float> RandomFloats(std::size_t n, SplitMix& random) {
  std::vector<float> out(n);
  for (float& v : out) v = float(random.Unit() - 0.5);
  return out;
}

// Two layers, with the rows and inputs of a pass.
class LayerStackTest : public ::testing::Test {
 protected:
  LayerStackTest() {
    job_.train.recompute = true;
    SplitMix random(3);
    layers_ = MakeDenseLayers(job_, "layer", kIn, {6, kOut}, false, &uses_);
    for (const TableUse& use : uses_) {
      tables_.push_back(RandomFloats(use.spec.rows * use.spec.dim, random));
      gradients_.emplace_back(tables_.back().size(), 0.0f);
    }
    for (std::size_t t = 0; t < uses_.size(); ++t)
      views_.push_back({tables_[t].data(), gradients_[t].data(), nullptr, uses_[t].spec.rows});
    x_ = RandomFloats(kRows * kIn, random);
    dy_ = RandomFloats(kRows * kOut, random);
  }

  std::vector<std::vector<float>> Gradients(LayerStack& stack) {
    for (auto& gradients : gradients_) std::ranges::fill(gradients, 0.0f);
    std::vector<float> dy = dy_;
    stack.Backward(compute_, kRows, x_.data(), dy.data(), nullptr, views_);
    return gradients_;
  }

  Job job_;
  std::vector<TableUse> uses_;
  std::vector<DenseLayer> layers_;
  std::vector<std::vector<float>> tables_, gradients_;
  std::vector<TableView> views_;
  std::vector<float> x_, dy_;
  Compute compute_;
};

TEST_F(LayerStackTest, AfterForwardAgainNothingIsComputedTwice) {
  LayerStack stack(job_, layers_);
  stack.Forward(compute_, kRows, x_.data(), views_);
  const auto expected = Gradients(stack);
  compute_.memory().Reset();
  stack.ForwardAgain(compute_, kRows, x_.data(), views_);
  for (auto& table : tables_) std::ranges::fill(table, 0.0f);
  EXPECT_EQ(Gradients(stack), expected);
}

TEST_F(LayerStackTest, ForwardKeepsNothingUnderRecompute) {
  LayerStack stack(job_, layers_);
  stack.ForwardAgain(compute_, kRows, x_.data(), views_);
  const auto expected = Gradients(stack);
  compute_.memory().Reset();
  stack.Forward(compute_, kRows, x_.data(), views_);
  const Workspace::Mark mark = compute_.memory().mark();
  std::ranges::fill_n(compute_.Get<float>(1000), 1000, 1e9f);  // overwrites memory that is not kept
  compute_.memory().Release(mark);
  EXPECT_EQ(Gradients(stack), expected);
}

}  // namespace
}  // namespace tarn::worker
