#include "core/hash.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"

namespace tarn::kernels::cuda {

cudaError_t PositionsOf(cudaStream_t stream, std::size_t n, const std::uint64_t* keys, std::uint64_t salt,
                        std::uint64_t* positions) {
  return ForEach(stream, n, [=] __device__(std::size_t i) { positions[i] = Mix64(keys[i] ^ salt); });
}

cudaError_t KeysAt(cudaStream_t stream, std::size_t n, const std::uint64_t* positions, std::uint64_t salt,
                   std::uint64_t* keys) {
  return ForEach(stream, n, [=] __device__(std::size_t i) { keys[i] = Unmix64(positions[i]) ^ salt; });
}

}  // namespace tarn::kernels::cuda
