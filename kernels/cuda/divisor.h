// Division by an invariant number as a multiplication and a shift: a GPU has no division instruction and needs about
// twenty others. (Granlund, Montgomery: Division by invariant integers using multiplication, PLDI 1994.)
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace tarn::kernels::cuda {

// Divides numbers below 2^31 by a fixed divisor in [1, 2^31].
class Divisor {
 public:
  explicit constexpr Divisor(std::uint32_t by) : by_(by) {
    while (shift_ < 31 && (std::uint32_t{1} << shift_) < by) ++shift_;
    const std::uint64_t above = (std::uint64_t{1} << shift_) - by;
    factor_ = static_cast<std::uint32_t>((above << 32) / by + 1);
  }

  TARN_HOST_DEVICE constexpr std::uint32_t Quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{n} * factor_ >> 32);
    return (high + n) >> shift_;
  }
  TARN_HOST_DEVICE constexpr std::uint32_t by() const { return by_; }

 private:
  std::uint32_t by_;
  std::uint32_t factor_ = 0;
  unsigned shift_ = 0;
};

}  // namespace tarn::kernels::cuda
