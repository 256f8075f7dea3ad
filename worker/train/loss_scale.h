// The dynamic loss scale of fp16 training (Micikevicius et al., ICLR 2018, arXiv:1710.03740): as large as possible
// without overflow, so that small gradients do not vanish.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/precision.h"

namespace tarn::worker {

class LossScale {
 public:
  static constexpr float kFirst = 65'536, kMax = 16'777'216;
  static constexpr std::uint32_t kGrowsAfter = 2'000;  // batches

  // For other precisions than fp16 the scale is always 1.
  explicit LossScale(Precision precision) : on_(precision == Precision::kFp16), value_(on_ ? kFirst : 1.0f) {}

  bool on() const { return on_; }
  float value() const { return value_; }

  // Must be called after a batch whose loss was scaled by `used`. Returns whether its gradients may be used: false if
  // they overflowed and a smaller scale may help, true if the scale is 1. A batch that began before the last change
  // does not affect the current scale.
  bool Settle(bool finite, float used) {
    if (!on_) return true;
    if (used != value_) return finite || used == 1.0f;
    if (finite) {
      if (++finite_batches_ < kGrowsAfter) return true;
      value_ = std::min(2 * value_, kMax);
    }
    finite_batches_ = 0;
    if (finite || value_ == 1.0f) return true;
    value_ /= 2;
    return false;
  }

 private:
  bool on_;
  float value_;
  std::uint32_t finite_batches_ = 0;  // finite batches since the scale changed
};

}  // namespace tarn::worker
