// Copies rows. Memory latency is most of a microsecond, so speed depends on the number of bytes in flight: the number
// of threads per row depends on its width, each thread has kRowsAtOnce loads in flight, and the addresses of all these
// rows are known before the first is loaded.
#pragma once

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"

namespace tarn::kernels::cuda {

// Source and destination of a row. If `to` is null nothing is written, but `from` must be readable.
struct Move {
  const float* from;
  float* to;
};

inline constexpr unsigned kRowsAtOnce = 4;

// kAdd: to += from. At every step the threads of a block work on consecutive rows. The loads are not read-only loads,
// because the compiler would move read-only loads to after the stores.
template <int kWidth, bool kAdd, typename F>
__global__ void __launch_bounds__(kBlock, kAdd ? 4 : 5)
    MoveRowsKernel(std::uint32_t dim, std::size_t n, unsigned threads, F row) {
  const unsigned lane = threadIdx.x % threads, rows_of_block = kBlock / threads;
  for (std::size_t first = std::size_t{blockIdx.x} * rows_of_block * kRowsAtOnce + threadIdx.x / threads; first < n;
       first += std::size_t{gridDim.x} * rows_of_block * kRowsAtOnce) {
    Move moves[kRowsAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kRowsAtOnce; ++k) {
      const std::size_t i = first + k * rows_of_block;
      moves[k] = row(i < n ? i : first);
      if (i >= n) moves[k].to = nullptr;
    }
    for (std::uint32_t j = lane * kWidth; j < dim; j += threads * kWidth) {
      Floats<kWidth> floats[kRowsAtOnce];
#pragma unroll
      for (unsigned k = 0; k < kRowsAtOnce; ++k) floats[k] = LoadGlobal<kWidth>(moves[k].from + j);
      if constexpr (kAdd) {
#pragma unroll
        for (unsigned k = 0; k < kRowsAtOnce; ++k)
          if (moves[k].to != nullptr) floats[k].Add(LoadGlobal<kWidth>(moves[k].to + j));
      }
#pragma unroll
      for (unsigned k = 0; k < kRowsAtOnce; ++k)
        if (moves[k].to != nullptr) StoreGlobal(moves[k].to + j, floats[k]);
    }
  }
}

template <int kWidth, bool kAdd, typename F>
cudaError_t MoveRowsBy(cudaStream_t stream, std::uint32_t dim, std::size_t n, F row) {
  const unsigned threads = ThreadsOfRow(dim, kWidth);
  MoveRowsKernel<kWidth, kAdd>
      <<<BlocksFor((n + kRowsAtOnce - 1) / kRowsAtOnce * threads), kBlock, 0, stream>>>(dim, n, threads, row);
  return cudaGetLastError();
}

// row(i), for i in [0, n), returns the Move of row i; each thread of a row calls it. `aligned`: if dim is a multiple of
// 4, every row begins at a multiple of 16 bytes. No row that is written is read by another move.
template <bool kAdd = false, typename F>
cudaError_t MoveRows(cudaStream_t stream, std::uint32_t dim, std::size_t n, bool aligned, F row) {
  if (n == 0 || dim == 0) return cudaSuccess;
  if (aligned && dim % 4 == 0) return MoveRowsBy<4, kAdd>(stream, dim, n, row);
  return MoveRowsBy<1, kAdd>(stream, dim, n, row);
}

}  // namespace tarn::kernels::cuda
