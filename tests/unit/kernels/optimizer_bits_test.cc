// Shows that an optimizer's bits depend only on the rows' state and gradients, not on batches, order, addresses or the
// instruction set. Replay and equal runs rely on this.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "core/hash.h"
#include "kernels/optimizer.h"
#include "tests/unit/kernels/kernel_test_util.h"
#include "tests/unit/kernels/optimizer_cases.h"

namespace tarn::kernels {
namespace {

constexpr std::size_t kRows = 53;
constexpr std::uint64_t kClocks = 20;

// The layout and the batches of the rows in a run.
struct Manner {
  std::size_t batch = kRows;
  std::size_t shift = 0;  // of rows in memory, in floats
  bool reversed = false;
};

// All values and slots after kClocks pushes of all rows.
std::vector<float> Train(const OptimizerSpec& spec, std::uint32_t dim, const Manner& manner) {
  SplitMix random(dim);
  const std::uint32_t slot_floats = SlotFloats(spec.kind, dim);
  std::vector<float> slots_start(kRows * slot_floats);
  for (std::size_t i = 0; i < kRows; ++i) InitSlots(spec, dim, slots_start.data() + i * slot_floats);
  Shifted values(RandomFloats(kRows * dim, random), manner.shift);
  Shifted slots(slots_start, 3 * manner.shift);
  std::vector<std::size_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  if (manner.reversed) std::reverse(order.begin(), order.end());
  for (std::uint64_t clock = 0; clock < kClocks; ++clock) {
    const std::vector<float> gradients = RandomFloats(kRows * dim, random);
    for (std::size_t begin = 0; begin < kRows; begin += manner.batch) {
      std::vector<float*> value_pointers, slot_pointers;
      std::vector<float> packed;
      for (std::size_t i = begin; i < std::min(kRows, begin + manner.batch); ++i) {
        const std::size_t row = order[i];
        value_pointers.push_back(values.data() + row * dim);
        slot_pointers.push_back(slots.data() + row * slot_floats);
        packed.insert(packed.end(), gradients.begin() + std::ptrdiff_t(row * dim),
                      gradients.begin() + std::ptrdiff_t((row + 1) * dim));
      }
      Shifted shifted(packed, 5 * manner.shift);
      ApplyOptimizer(spec, Clock(clock), dim, value_pointers.size(), value_pointers.data(), slot_pointers.data(),
                     shifted.data());
    }
  }
  std::vector<float> result = values.values();
  const std::vector<float> state = slots.values();
  result.insert(result.end(), state.begin(), state.end());
  return result;
}

TEST(OptimizerBitsTest, DoNotDependOnBatchesOrderOrAlignment) {
  for (const OptimizerCase& c : OptimizerCases())
    for (const std::uint32_t dim : {1u, 4u, 8u, 17u}) {
      const std::vector<float> expected = Train(c.spec, dim, {});
      EXPECT_TRUE(SameBits(expected, Train(c.spec, dim, {}))) << c.name << " again";
      for (const std::size_t batch : {1, 2, 7, 52})
        EXPECT_TRUE(SameBits(expected, Train(c.spec, dim, {.batch = batch}))) << c.name << " by " << batch;
      for (const std::size_t shift : {1, 7})
        EXPECT_TRUE(SameBits(expected, Train(c.spec, dim, {.shift = shift}))) << c.name << " shift " << shift;
      EXPECT_TRUE(SameBits(expected, Train(c.spec, dim, {.batch = 10, .reversed = true}))) << c.name << " reversed";
    }
}

TEST(OptimizerBitsTest, AreTheSameOnEveryInstructionSet) {
  for (const OptimizerCase& c : OptimizerCases())
    for (const std::uint32_t dim : {1u, 7u, 16u, 37u, 100u}) {
      SCOPED_TRACE(c.name + ", dim " + std::to_string(dim));
      ExpectSameBitsOnEveryTarget([&] { return Train(c.spec, dim, {.shift = 1}); });
    }
}

// Runs continue from checkpoints of earlier versions, so every version must compute the bits of the first.
TEST(OptimizerBitsTest, AreTheSameInEveryVersion) {
  const std::map<std::string, std::uint64_t> hashes = {
      {"sgd", 0xadcccaacb5bbc337},
      {"sgd, l2, clipped by value, cosine", 0x0b0604bbe551b03c},
      {"sgd, clipped by norm, steps", 0x07cf6adbad0ccc15},
      {"momentum", 0xcfac64dfe04c80ae},
      {"momentum, l2, clipped by value, cosine", 0xe3be66c63e913bc7},
      {"momentum, clipped by norm, steps", 0xf9751e4b3db7fa75},
      {"nesterov", 0x40000c62501db527},
      {"nesterov, l2, clipped by value, cosine", 0x0fa553ece84c7f02},
      {"nesterov, clipped by norm, steps", 0x353f47a3c282f6d6},
      {"adagrad", 0xb137331b1f3aa50e},
      {"adagrad, l2, clipped by value, cosine", 0x1c81ad8392437251},
      {"adagrad, clipped by norm, steps", 0xfd7a153c3f65d971},
      {"row_wise_adagrad", 0xbcf87cb905bc34ed},
      {"row_wise_adagrad, l2, clipped by value, cosine", 0x730f0701730a839b},
      {"row_wise_adagrad, clipped by norm, steps", 0x6d44c7a366ac55ca},
      {"rmsprop", 0x5e468d6bfeb05c45},
      {"rmsprop, l2, clipped by value, cosine", 0x5b0a7efdf70d90ab},
      {"rmsprop, clipped by norm, steps", 0x5fef2e24282b4e50},
      {"adam", 0xfaa8a959f85a0b9f},
      {"adam, l2, clipped by value, cosine", 0xb60321cda66d9f60},
      {"adam, clipped by norm, steps", 0x987ece45257696a4},
      {"adamw", 0x2313109df03ca137},
      {"adamw, l2, clipped by value, cosine", 0x9dc7e5b92e74ad97},
      {"adamw, clipped by norm, steps", 0x9b2217242e47d3d7},
      {"ftrl", 0x8d72f9dfcb780ba4},
      {"ftrl, l2, clipped by value, cosine", 0xc59a631ca431da8d},
      {"ftrl, clipped by norm, steps", 0x7a5b1e5c506e128a}};
  ASSERT_EQ(OptimizerCases().size(), hashes.size());
  for (const OptimizerCase& c : OptimizerCases()) {
    std::uint64_t hash = 0;
    for (const std::uint32_t dim : {1u, 4u, 8u, 16u, 17u, 32u, 64u, 100u}) {
      const std::vector<float> all = Train(c.spec, dim, {});
      hash = HashBytes({reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float)}, hash);
    }
    EXPECT_EQ(hash, hashes.at(c.name)) << c.name;
  }
}

// The kernel has the bits of the scalar loop in this file.
TEST(OptimizerBitsTest, AdagradHasTheBitsOfThePlainFormula) {
  OptimizerSpec spec;
  spec.kind = "adagrad";
  SplitMix random(3);
  std::vector<float> w = RandomFloats(100, random), a(100, 0.0f);
  std::vector<float> w_expected = w, a_expected = a;
  float* value_pointer = w.data();
  float* slot_pointer = a.data();
  for (std::uint64_t clock = 0; clock < 50; ++clock) {
    const std::vector<float> g = RandomFloats(100, random);
    ApplyOptimizer(spec, Clock(clock), 100, 1, &value_pointer, &slot_pointer, g.data());
    for (std::size_t j = 0; j < 100; ++j) {
      volatile float square = g[j] * g[j];
      a_expected[j] += square;
      volatile float step = spec.learning_rate * g[j];
      w_expected[j] -= step / (std::sqrt(a_expected[j]) + OptionOf(spec, "epsilon"));
    }
  }
  EXPECT_TRUE(SameBits(w, w_expected));
  EXPECT_TRUE(SameBits(a, a_expected));
}

}  // namespace
}  // namespace tarn::kernels
