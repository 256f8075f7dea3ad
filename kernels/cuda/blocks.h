// How many blocks of threads a kernel is launched with at most, if it has work for so many. C++17, for nvcc.
#pragma once

#include <cstddef>

namespace tarn::kernels::cuda {

// Waves of a large GPU: so many that a last one which is not full costs little; the loops stride over the rest.
inline constexpr std::size_t kBlocksMax = 132 * 64;

namespace internal {
inline thread_local std::size_t blocks_max = kBlocksMax;
}

// Of this thread's launches.
inline std::size_t BlocksMax() { return internal::blocks_max; }

// For tests: as long as it is there, this thread launches so few that small arrays take more than one trip through the
// loops.
class FewBlocks {
 public:
  explicit FewBlocks(std::size_t max) : before_(internal::blocks_max) { internal::blocks_max = max; }
  ~FewBlocks() { internal::blocks_max = before_; }
  FewBlocks(const FewBlocks&) = delete;
  FewBlocks& operator=(const FewBlocks&) = delete;

 private:
  std::size_t before_;
};

}  // namespace tarn::kernels::cuda
