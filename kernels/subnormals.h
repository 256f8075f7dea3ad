// Numbers nearer to zero than the smallest normal float (2^-126; 2^-1022 in double) count as zero, as operands and as
// results. Once a model is sure of its samples its gradients are such numbers, and a processor takes some hundred
// cycles for each: a DLRM then trains at a quarter of its speed. CUDA's kernels are compiled so for floats: they have
// the bits that the CPU has while one of these lives.
#pragma once

#include <xmmintrin.h>

namespace tarn::kernels {

// As long as it lives, in the thread that made it and in those that this thread starts. What was set before comes back.
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
