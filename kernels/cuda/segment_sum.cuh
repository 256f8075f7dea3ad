// Sums along the segments of a batch (kernels/segments.h), in the order of kernels/cuda/pieces.h. Threads of a tile,
// as many as a row's width asks for, take a piece; each adds up columns of its own, so none waits for another.
#pragma once

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pieces.h"

namespace tarn::kernels::cuda {

// kWidth neighbouring floats, moved at once: 4 of them aligned to 16 bytes, or 1.
template <int kWidth>
struct Floats {
  float v[kWidth];

  __device__ void Add(const Floats& other) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v[k] += other.v[k];
  }
};

template <int kWidth>
__device__ inline Floats<kWidth> Load(const float* from) {
  if constexpr (kWidth == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  } else {
    return {{*from}};
  }
}

template <int kWidth>
__device__ inline void Store(float* to, const Floats<kWidth>& floats) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(to) = {floats.v[0], floats.v[1], floats.v[2], floats.v[3]};
  } else {
    *to = floats.v[0];
  }
}

// Sums every piece: into its row where it is the only one of its segment, else into its slot.
template <int kWidth, typename Term>
__global__ void SumPiecesKernel(SegmentsView at, std::uint32_t dim, unsigned tile, Term term, float* out) {
  const std::size_t pieces = *at.n_pieces;
  for (std::size_t p = FirstThread() / tile; p < pieces; p += Threads() / tile) {
    // Every position is in a piece, so the next one tells where this one ends, before its row is known.
    const std::uint32_t from = at.pieces[p], to = p + 1 < pieces ? at.pieces[p + 1] : at.n;
    const std::uint32_t row = at.rows[from], begin = at.begins[row];
    const bool whole = IsOnePiece(begin, at.ends[row]);
    float* sums = whole ? out + std::size_t{row} * dim : at.partials + PieceSlot(begin, from) * dim;
    for (std::uint32_t j = threadIdx.x % tile * kWidth; j < dim; j += tile * kWidth) {
      Floats<kWidth> sum = whole ? Load<kWidth>(sums + j) : Floats<kWidth>{};
#pragma unroll 4
      for (std::uint32_t i = from; i < to; ++i) sum.Add(term.template At<kWidth>(at.order[i], row, j));
      Store(sums + j, sum);
    }
  }
}

// One level of the tree. A warp looks at 32 pieces, then adds up, one after the other, for those that take sums.
template <int kWidth>
__global__ void AddSumsKernel(SegmentsView at, std::uint32_t dim, std::uint64_t width, float* out) {
  constexpr unsigned kAll = 0xffffffffu;
  const std::size_t pieces = *at.n_pieces;
  for (std::size_t first = FirstWarp() * kWarp; first < pieces; first += Warps() * kWarp) {
    std::uint32_t mine = 0;
    bool takes = false;
    if (first + Lane() < pieces) {
      mine = at.pieces[first + Lane()];
      const std::uint32_t row = at.rows[mine];
      takes = TakesSums(at.begins[row], at.ends[row], mine, width);
    }
    for (unsigned left = __ballot_sync(kAll, takes); left != 0; left &= left - 1) {
      const std::uint32_t from = __shfl_sync(kAll, mine, __ffs(left) - 1), row = at.rows[from];
      const std::uint32_t begin = at.begins[row], end = at.ends[row];
      const std::uint64_t sums_end = SumsEnd(end, from, width);
      float* to = at.partials + PieceSlot(begin, from) * dim;
      for (std::uint32_t j = Lane() * kWidth; j < dim; j += kWarp * kWidth) {
        Floats<kWidth> sum = Load<kWidth>(to + j);
#pragma unroll 4
        for (std::uint64_t next = from + width; next < sums_end; next += width)
          sum.Add(Load<kWidth>(at.partials + PieceSlot(begin, static_cast<std::uint32_t>(next)) * dim + j));
        if (!IsRoot(begin, end, width)) {
          Store(to + j, sum);
        } else {
          Floats<kWidth> total = Load<kWidth>(out + std::size_t{row} * dim + j);
          total.Add(sum);
          Store(out + std::size_t{row} * dim + j, total);
        }
      }
    }
  }
}

template <int kWidth, typename Term>
cudaError_t SumSegmentsBy(cudaStream_t stream, const SegmentsView& at, std::uint32_t dim, const Term& term,
                          float* out) {
  unsigned tile = 1;
  while (tile < kWarp && tile * kWidth < dim) tile *= 2;
  SumPiecesKernel<kWidth><<<BlocksFor(std::size_t{at.n} * tile), kBlock, 0, stream>>>(at, dim, tile, term, out);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  for (std::uint64_t width = kPiece; width < at.n; width *= kPiece) {
    AddSumsKernel<kWidth><<<BlocksFor(at.n), kBlock, 0, stream>>>(at, dim, width, out);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// out[row] += the sum of term.At<kWidth>(occurrence, row, column) over the occurrences of every row, rows of `dim`
// floats. `aligned`: the term may be asked for columns by four.
template <typename Term>
cudaError_t SumSegments(cudaStream_t stream, const SegmentsView& at, std::uint32_t dim, bool aligned, const Term& term,
                        float* out) {
  if (at.n == 0) return cudaSuccess;
  if (aligned && dim % 4 == 0 && IsAligned16(out)) return SumSegmentsBy<4>(stream, at, dim, term, out);
  return SumSegmentsBy<1>(stream, at, dim, term, out);
}

}  // namespace tarn::kernels::cuda
