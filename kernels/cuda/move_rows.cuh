// Rows from place to place. A memory answers after most of a microsecond, so what counts is how many bytes are asked
// for meanwhile: the threads of a row are as many as its width asks for, each has kRowsAtOnce of its loads under way,
// and the places of all these rows are known before the first is loaded.
#pragma once

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"

namespace tarn::kernels::cuda {

// Where a row comes from and goes to. `from` is readable even where `to` is null, and nothing is written.
struct Move {
  const float* from;
  float* to;
};

inline constexpr unsigned kRowsAtOnce = 4;

// kAdd: to += from. Rows of a block lie side by side, at every step of its threads. Loads are no read-only ones, which
// the compiler would move behind the stores, to where they are needed.
template <int kWidth, bool kAdd, typename F>
__global__ void __launch_bounds__(kBlock, kAdd ? 4 : 5)
    MoveRowsKernel(std::uint32_t dim, std::size_t n, unsigned threads, F row) {
  const unsigned lane = threadIdx.x % threads, of_block = kBlock / threads;
  for (std::size_t first = std::size_t{blockIdx.x} * of_block * kRowsAtOnce + threadIdx.x / threads; first < n;
       first += std::size_t{gridDim.x} * of_block * kRowsAtOnce) {
    Move moves[kRowsAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kRowsAtOnce; ++k) {
      const std::size_t i = first + k * of_block;
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

// row(i), for i in [0, n), is the Move of row i; each thread of a row asks for it. `aligned`: every row that is moved
// begins at a multiple of 16 bytes if dim is one of 4. No row that is written is read by another move.
template <bool kAdd = false, typename F>
cudaError_t MoveRows(cudaStream_t stream, std::uint32_t dim, std::size_t n, bool aligned, F row) {
  if (n == 0 || dim == 0) return cudaSuccess;
  if (aligned && dim % 4 == 0) return MoveRowsBy<4, kAdd>(stream, dim, n, row);
  return MoveRowsBy<1, kAdd>(stream, dim, n, row);
}

}  // namespace tarn::kernels::cuda
