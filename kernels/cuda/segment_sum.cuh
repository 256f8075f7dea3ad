// Sums along the segments of a batch (kernels/segments.h), in the order of kernels/cuda/pieces.h. The number of threads
// per piece depends on the row's width; each sums separate columns, so threads do not wait for each other.
#pragma once

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pieces.h"

namespace tarn::kernels::cuda {

inline constexpr unsigned kTermsAtOnce = 4;  // in flight per thread

// Adds the terms of the positions from ... to - 1, in order.
template <int kWidth, typename Term>
__device__ inline void AddTerms(const SegmentsView& at, std::uint32_t from, std::uint32_t to, std::uint32_t row,
                                std::uint32_t j, const Term& term, Floats<kWidth>* sum) {
  for (std::uint32_t i = from; i < to; i += kTermsAtOnce) {
    Floats<kWidth> terms[kTermsAtOnce];
    // Beyond the piece's end, its last term is loaded again and not added.
#pragma unroll
    for (unsigned k = 0; k < kTermsAtOnce; ++k)
      terms[k] = term.template At<kWidth>(__ldg(at.order + min(i + k, to - 1)), row, j);
#pragma unroll
    for (unsigned k = 0; k < kTermsAtOnce; ++k) sum->AddIf(i + k < to, terms[k]);
  }
}

// Sums every piece: into its row if it is the only piece of its segment, else into its slot.
template <int kWidth, typename Term>
__global__ void __launch_bounds__(kBlock, 5)
    SumPiecesKernel(SegmentsView at, std::uint32_t dim, unsigned threads, Term term, float* out) {
  const std::size_t pieces = *at.n_pieces;
  for (std::size_t p = FirstThread() / threads; p < pieces; p += Threads() / threads) {
    // Every position is in a piece, so the begin of the next piece is the end of this one, and the rows of the
    // neighbours show whether they belong to its segment. Nothing else is loaded before the terms.
    const std::uint32_t from = __ldg(at.pieces + p), to = p + 1 < pieces ? __ldg(at.pieces + p + 1) : at.n;
    const std::uint32_t row = __ldg(at.rows + from);
    const bool begins = from == 0 || __ldg(at.rows + from - 1) != row;
    const bool whole = begins && (to == at.n || __ldg(at.rows + to) != row);
    float* sums = whole ? out + std::size_t{row} * dim : at.partials + PieceSlot(begins ? from : 0, from) * dim;
    for (std::uint32_t j = threadIdx.x % threads * kWidth; j < dim; j += threads * kWidth) {
      Floats<kWidth> sum = whole ? LoadGlobal<kWidth>(sums + j) : Floats<kWidth>{};
      AddTerms(at, from, to, row, j, term, &sum);
      StoreGlobal(sums + j, sum);
    }
  }
}

// One level of the tree. A warp checks the pieces of 32 slots, then adds sums for those that need it, one after the
// other.
template <int kWidth>
__global__ void __launch_bounds__(kBlock)
    AddSumsKernel(SegmentsView at, std::uint32_t dim, std::uint64_t width, float* out) {
  constexpr unsigned kAll = 0xffffffffu;
  const auto slots = static_cast<std::uint32_t>(PieceSlots(at.n));
  for (std::size_t first = FirstWarp() * kWarp; first < slots; first += Warps() * kWarp) {
    const auto slot = static_cast<std::uint32_t>(first) + Lane();
    const std::uint32_t inside = PositionOfSlot(slot);
    std::uint32_t mine = kNoPiece, row = 0, begin = 0, end = 0;
    if (slot < slots && inside < at.n) {
      row = at.rows[inside];
      begin = at.begins[row];
      end = at.ends[row];
      mine = PieceOfSlot(begin, end, slot);
    }
    const bool takes = mine != kNoPiece && TakesSums(begin, end, mine, width);
    for (unsigned left = __ballot_sync(kAll, takes); left != 0; left &= left - 1) {
      const int lane = __ffs(left) - 1;
      const std::uint32_t from = __shfl_sync(kAll, mine, lane), to_row = __shfl_sync(kAll, row, lane);
      const std::uint32_t from_begin = __shfl_sync(kAll, begin, lane), from_end = __shfl_sync(kAll, end, lane);
      const std::uint64_t sums_end = SumsEnd(from_end, from, width);
      float* to = at.partials + PieceSlot(from_begin, from) * dim;
      for (std::uint32_t j = Lane() * kWidth; j < dim; j += kWarp * kWidth) {
        Floats<kWidth> sum = LoadGlobal<kWidth>(to + j);
#pragma unroll 8
        for (std::uint64_t next = from + width; next < sums_end; next += width)
          sum.Add(LoadGlobal<kWidth>(at.partials + PieceSlot(from_begin, static_cast<std::uint32_t>(next)) * dim + j));
        if (!IsRoot(from_begin, from_end, width)) {
          StoreGlobal(to + j, sum);
        } else {
          Floats<kWidth> total = LoadGlobal<kWidth>(out + std::size_t{to_row} * dim + j);
          total.Add(sum);
          StoreGlobal(out + std::size_t{to_row} * dim + j, total);
        }
      }
    }
  }
}

template <int kWidth, typename Term>
cudaError_t SumSegmentsBy(cudaStream_t stream, const SegmentsView& at, std::uint32_t dim, const Term& term,
                          float* out) {
  const unsigned threads = ThreadsOfRow(dim, kWidth);
  SumPiecesKernel<kWidth><<<BlocksFor(std::size_t{at.n} * threads), kBlock, 0, stream>>>(at, dim, threads, term, out);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  for (std::uint64_t width = kPiece; width < at.n; width *= kPiece) {
    AddSumsKernel<kWidth><<<BlocksFor(PieceSlots(at.n)), kBlock, 0, stream>>>(at, dim, width, out);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// out[row] += the sum of term.At<kWidth>(occurrence, row, column) over the occurrences of every row, rows of `dim`
// floats. `aligned`: the term may be loaded four columns at a time.
template <typename Term>
cudaError_t SumSegments(cudaStream_t stream, const SegmentsView& at, std::uint32_t dim, bool aligned, const Term& term,
                        float* out) {
  if (at.n == 0) return cudaSuccess;
  if (aligned && dim % 4 == 0 && IsAligned16(out)) return SumSegmentsBy<4>(stream, at, dim, term, out);
  return SumSegmentsBy<1>(stream, at, dim, term, out);
}

}  // namespace tarn::kernels::cuda
