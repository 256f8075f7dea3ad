// Shared by the kernel tests: random and poisoned arrays, comparison of bits, and execution on every instruction set of
// the kernels that this processor supports, with and without subnormals.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/hash.h"
#include "hwy/targets.h"
#include "kernels/subnormals.h"

namespace tarn::kernels {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// n floats uniform in [low, high).
inline std::vector<float> RandomFloats(std::size_t n, SplitMix& random, double low = -1, double high = 1) {
  std::vector<float> out(n);
  for (float& v : out) v = float(low + (high - low) * random.Unit());
  return out;
}

// n indices below `bound`.
inline std::vector<std::uint32_t> RandomIndices(std::size_t n, std::uint32_t bound, SplitMix& random) {
  std::vector<std::uint32_t> out(n);
  for (std::uint32_t& v : out) v = std::uint32_t(random.Below(bound));
  return out;
}

// samples + 1 offsets of bags of 0..size_max occurrences.
inline std::vector<std::uint32_t> RandomOffsets(std::size_t samples, std::uint32_t size_max, SplitMix& random) {
  std::vector<std::uint32_t> out(samples + 1, 0);
  for (std::size_t s = 0; s < samples; ++s) out[s + 1] = out[s] + std::uint32_t(random.Below(size_max + 1));
  return out;
}

inline std::vector<float> Poisoned(std::size_t n) { return std::vector<float>(n, kPoison); }

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Expects every element within `tolerance` of the reference, relative to the larger of `scale` and the element.
inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance,
                       double scale = 1.0) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(double(actual[i]) - expected[i]);
    ASSERT_LE(error, tolerance * std::max(scale, std::abs(expected[i])))
        << "element " << i << ": " << actual[i] << " for " << expected[i];
  }
}

// Calls f() with subnormals, then without, as in training (kernels/subnormals.h).
template <typename F>
void InBothModes(F f) {
  {
    SCOPED_TRACE("with subnormals");
    f();
  }
  SCOPED_TRACE("subnormals are zero");
  const SubnormalsAreZero as_in_training;
  f();
}

// Calls f(name) once for each instruction set; restores the best one at the end.
template <typename F>
void ForEachTargetInThisMode(F f) {
  const std::int64_t available = hwy::SupportedTargets();
  for (const std::int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    if ((target & available) == 0 && target != HWY_SCALAR) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <typename F>
void ForEachTarget(F f) {
  InBothModes([&] { ForEachTargetInThisMode(f); });
}

// Runs `compute`, which returns floats, on every instruction set. In each mode all results must have the same bits.
template <typename F>
void ExpectSameBitsOnEveryTarget(F compute) {
  InBothModes([&] {
    std::vector<float> first;
    bool have_first = false;
    ForEachTargetInThisMode([&](const char* name) {
      const std::vector<float> result = compute();
      if (have_first)
        EXPECT_TRUE(SameBits(first, result)) << "on " << name;
      else
        first = result;
      have_first = true;
    });
  });
}

// A copy of `values` that begins `shift` floats past the alignment of a vector.
class Shifted {
 public:
  Shifted(const std::vector<float>& values, std::size_t shift) : storage_(values.size() + 32) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = (64 - address % 64) % 64 / sizeof(float) + shift % 16;
    storage_.resize(begin_ + values.size());
    std::copy(values.begin(), values.end(), storage_.begin() + std::ptrdiff_t(begin_));
  }
  float* data() { return storage_.data() + begin_; }
  std::vector<float> values() const { return {storage_.begin() + std::ptrdiff_t(begin_), storage_.end()}; }

 private:
  std::vector<float> storage_;
  std::size_t begin_;
};

}  // namespace tarn::kernels
