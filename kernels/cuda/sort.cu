// Operations that use CUB's radix sort, which is stable: unique keys, occurrences by row, items by partition, the k
// largest magnitudes; and FillIdentity and RowNorms, which do not sort. All sizes are below 2^31.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/tile.cuh"

namespace tarn::kernels::cuda {
namespace {

using Positions = thrust::counting_iterator<std::uint32_t>;

// 1 for a key that differs from the one before it: keys are sorted.
struct IsFirst {
  const std::uint64_t* keys;
  __host__ __device__ std::uint32_t operator()(std::uint32_t i) const { return i == 0 || keys[i] != keys[i - 1]; }
};

struct BeginsPiece {
  const std::uint32_t *rows, *begins;
  __host__ __device__ bool operator()(std::uint32_t i) const { return IsPieceBegin(begins[rows[i]], i); }
};

// The number of bits of the numbers below `n`, at least one.
int BitsBelow(std::size_t n) {
  int bits = 1;
  while (bits < 32 && n > std::size_t{1} << bits) ++bits;
  return bits;
}

template <typename Sorted>
cudaError_t Sort(cudaStream_t stream, std::size_t n, const Sorted* in, int bits, const SortBuffers& sort, Sorted* out,
                 std::uint32_t* order) {
  std::size_t bytes = sort.temp_bytes;
  return cub::DeviceRadixSort::SortPairs(sort.temp, bytes, in, out, sort.identity, order, static_cast<std::uint32_t>(n),
                                         0, bits, stream);
}

cudaError_t SortDescending(cudaStream_t stream, std::size_t n, const std::uint32_t* in, int bits,
                           const SortBuffers& sort, std::uint32_t* out, std::uint32_t* order) {
  std::size_t bytes = sort.temp_bytes;
  return cub::DeviceRadixSort::SortPairsDescending(sort.temp, bytes, in, out, sort.identity, order,
                                                   static_cast<std::uint32_t>(n), 0, bits, stream);
}

cudaError_t SortWords(cudaStream_t stream, std::size_t n, const std::uint32_t* in, int bits, const SortBuffers& sort,
                      std::uint32_t* out) {
  std::size_t bytes = sort.temp_bytes;
  return cub::DeviceRadixSort::SortKeys(sort.temp, bytes, in, out, static_cast<std::uint32_t>(n), 0, bits, stream);
}

// ranks[i]: the number of distinct keys up to position i.
cudaError_t CountFirsts(cudaStream_t stream, std::size_t n, const std::uint64_t* keys, const SortBuffers& sort,
                        std::uint32_t* ranks) {
  std::size_t bytes = sort.temp_bytes;
  const auto firsts = thrust::make_transform_iterator(Positions(0), IsFirst{keys});
  return cub::DeviceScan::InclusiveSum(sort.temp, bytes, firsts, ranks, static_cast<std::uint32_t>(n), stream);
}

cudaError_t FindPieces(cudaStream_t stream, const SortBuffers& sort, const SegmentsView& at) {
  std::size_t bytes = sort.temp_bytes;
  return cub::DeviceSelect::If(sort.temp, bytes, Positions(0), at.pieces, at.n_pieces, at.n,
                               BeginsPiece{at.rows, at.begins}, stream);
}

}  // namespace

// Without temporary memory CUB only returns the size that it needs.
cudaError_t SortTempBytes(std::size_t items, std::size_t* bytes) {
  *bytes = 0;
  const auto n = static_cast<std::uint32_t>(items);
  std::uint64_t* keys = nullptr;
  std::uint32_t* words = nullptr;
  std::size_t needed[6] = {};
  const cudaError_t errors[] = {
      cub::DeviceRadixSort::SortPairs(nullptr, needed[0], keys, keys, words, words, n),
      cub::DeviceRadixSort::SortPairs(nullptr, needed[1], words, words, words, words, n),
      cub::DeviceRadixSort::SortPairsDescending(nullptr, needed[2], words, words, words, words, n),
      cub::DeviceScan::InclusiveSum(nullptr, needed[3], thrust::make_transform_iterator(Positions(0), IsFirst{keys}),
                                    words, n),
      cub::DeviceSelect::If(nullptr, needed[4], Positions(0), words, words, n, BeginsPiece{words, words}),
      cub::DeviceRadixSort::SortKeys(nullptr, needed[5], words, words, n)};
  for (const cudaError_t error : errors)
    if (error != cudaSuccess) return error;
  *bytes = *std::max_element(needed, needed + 6);
  return cudaSuccess;
}

cudaError_t FillIdentity(cudaStream_t stream, std::size_t n, std::uint32_t* out) {
  return ForEach(stream, n, [=] __device__(std::size_t i) { out[i] = static_cast<std::uint32_t>(i); });
}

cudaError_t UniqueKeys(cudaStream_t stream, const std::uint64_t* keys, std::uint64_t* unique, std::uint32_t* inverse,
                       std::uint32_t* n_unique, const SortBuffers& sort, const SegmentsView& to) {
  const std::size_t n = to.n;
  if (n == 0) return cudaMemsetAsync(n_unique, 0, sizeof(*n_unique), stream);
  std::uint64_t* sorted = sort.keys;
  if (const cudaError_t error = Sort(stream, n, keys, 64, sort, sorted, to.order); error != cudaSuccess) return error;
  if (const cudaError_t error = CountFirsts(stream, n, sorted, sort, to.rows); error != cudaSuccess) return error;
  const cudaError_t error = ForEach(stream, n, [=] __device__(std::size_t i) {
    const std::uint64_t key = sorted[i];
    const std::uint32_t row = to.rows[i] - 1;
    to.rows[i] = row;
    inverse[to.order[i]] = row;
    if (i == 0 || sorted[i - 1] != key) {
      unique[row] = key;
      to.begins[row] = static_cast<std::uint32_t>(i);
    }
    if (i + 1 == n || sorted[i + 1] != key) to.ends[row] = static_cast<std::uint32_t>(i) + 1;
    if (i + 1 == n) *n_unique = row + 1;
  });
  return error != cudaSuccess ? error : FindPieces(stream, sort, to);
}

cudaError_t GroupByRow(cudaStream_t stream, const std::uint32_t* inverse, std::size_t n_rows, const SortBuffers& sort,
                       const SegmentsView& to) {
  const std::size_t n = to.n;
  if (n == 0) return cudaSuccess;
  if (const cudaError_t error = Sort(stream, n, inverse, BitsBelow(n_rows), sort, to.rows, to.order);
      error != cudaSuccess)
    return error;
  const cudaError_t error = ForEach(stream, n, [=] __device__(std::size_t i) {
    const std::uint32_t row = to.rows[i];
    if (i == 0 || to.rows[i - 1] != row) to.begins[row] = static_cast<std::uint32_t>(i);
    if (i + 1 == n || to.rows[i + 1] != row) to.ends[row] = static_cast<std::uint32_t>(i) + 1;
  });
  return error != cudaSuccess ? error : FindPieces(stream, sort, to);
}

cudaError_t GroupByPartition(cudaStream_t stream, std::size_t n, const std::uint32_t* partition_of,
                             std::uint32_t n_partitions, std::uint32_t* permutation, std::uint32_t* offsets,
                             const SortBuffers& sort) {
  const std::uint32_t* sorted = sort.words;
  if (n != 0)
    if (const cudaError_t error = Sort(stream, n, partition_of, BitsBelow(n_partitions), sort, sort.words, permutation);
        error != cudaSuccess)
      return error;
  // offsets[p]: the first position whose partition is not below p, by binary search.
  return ForEach(stream, std::size_t{n_partitions} + 1, [=] __device__(std::size_t p) {
    std::size_t begin = 0, end = n;
    while (begin < end) {
      const std::size_t middle = (begin + end) / 2;
      if (sorted[middle] < p)
        begin = middle + 1;
      else
        end = middle;
    }
    offsets[p] = static_cast<std::uint32_t>(begin);
  });
}

// The memory of the keys holds two arrays of words here: the sorted magnitudes and their original indices.
cudaError_t TopK(cudaStream_t stream, std::size_t n, std::size_t k, const float* in, std::uint32_t* index,
                 float* values, const SortBuffers& sort) {
  if (k == 0) return cudaSuccess;
  std::uint32_t *magnitudes = sort.words, *sorted = reinterpret_cast<std::uint32_t*>(sort.keys), *order = sorted + n;
  if (const cudaError_t error =
          ForEach(stream, n, [=] __device__(std::size_t i) { magnitudes[i] = __float_as_uint(in[i]) & 0x7fffffffu; });
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = SortDescending(stream, n, magnitudes, 31, sort, sorted, order); error != cudaSuccess)
    return error;
  if (const cudaError_t error = SortWords(stream, k, order, BitsBelow(n), sort, index); error != cudaSuccess)
    return error;
  return ForEach(stream, k, [=] __device__(std::size_t i) { values[i] = in[index[i]]; });
}

cudaError_t RowNorms(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* rows, float* norms) {
  return ForEachTile(stream, n, [=] __device__(std::size_t i, unsigned lane) {
    double partial = 0;
    for (std::uint32_t j = lane; j < dim; j += kTile) {
      const double x = double(rows[i * dim + j]);
      partial += x * x;
    }
    const double squares = SumOfTile(partial);
    if (lane == 0) norms[i] = static_cast<float>(sqrt(squares));
  });
}

}  // namespace tarn::kernels::cuda
