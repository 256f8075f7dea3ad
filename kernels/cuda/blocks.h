// The maximum number of blocks of a launch. C++17, for nvcc.
#pragma once

#include <cstddef>

namespace tarn::kernels::cuda {

// Several waves of a large GPU, so that a partly filled last wave costs little. Loops stride over the remaining work.
inline constexpr std::size_t kBlocksMax = 132 * 64;

namespace internal {
inline thread_local std::size_t blocks_max = kBlocksMax;
}

// The maximum for this thread's launches.
inline std::size_t BlocksMax() { return internal::blocks_max; }

// For tests: while it exists, this thread launches few blocks, so that the loops iterate more than once on small
// arrays.
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
