// Treats subnormal numbers (below 2^-126 for float, 2^-1022 for double) as zero, as operands and as results. When a
// model predicts its samples with near certainty, many gradients are subnormal, and a processor takes about a hundred
// cycles for each: a DLRM then trains at a quarter of its speed. The CUDA kernels are compiled to do the same for
// floats, so they give the CPU's bits while such an object exists.
#pragma once

#include <xmmintrin.h>

namespace tarn::kernels {

// In effect during the object's lifetime, in the thread that made it and in threads that this thread starts. The
// destructor restores the previous mode.
class SubnormalsAreZero {
 public:
  SubnormalsAreZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kOperandsAreZero | kResultsAreZero); }
  ~SubnormalsAreZero() { _mm_setcsr(before_); }
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

 private:
  static constexpr unsigned kOperandsAreZero = 1u << 6;
  static constexpr unsigned kResultsAreZero = 1u << 15;
  unsigned before_;
};

}  // namespace tarn::kernels
