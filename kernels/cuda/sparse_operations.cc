// The operations of kernels/*.h on a Stream that group, select and sum by row, and the losses: launches
// (kernels/cuda/launch.h) whose errors the stream keeps.
#include "core/limits.h"
#include "kernels/cuda/native.h"
#include "kernels/cuda/scratch.h"
#include "kernels/embedding.h"
#include "kernels/fm.h"
#include "kernels/loss.h"
#include "kernels/partition.h"
#include "kernels/positions.h"
#include "kernels/top_k.h"
#include "kernels/unique.h"

namespace tarn::kernels {
namespace {

const cuda::SortBuffers& BuffersFor(std::size_t items, SortScratch& scratch) {
  TARN_CHECK(items <= scratch.native().items_max, "a scratch has room for the items");
  return scratch.native().buffers;
}

// The view for writing a batch of n occurrences of n_rows rows.
const cuda::SegmentsView& Begin(Segments& segments, std::size_t n, std::size_t n_rows) {
  Segments::Native& native = segments.native();
  TARN_CHECK(n <= native.capacity.occurrences && n_rows <= native.capacity.rows, "segments have room for the batch");
  native.view.n = static_cast<std::uint32_t>(n);
  return native.view;
}

const cuda::SegmentsView& ViewFor(std::uint32_t dim, Segments& segments) {
  TARN_CHECK(dim <= segments.native().capacity.dim, "segments have room for the rows' width");
  return segments.native().view;
}

}  // namespace

void UniqueKeys(Stream& s, std::size_t n, const Key* keys, Key* unique, std::uint32_t* inverse, std::uint32_t* n_unique,
                SortScratch& scratch, Segments& segments) {
  s.native().Note(cuda::UniqueKeys(s.native().stream, keys, unique, inverse, n_unique, BuffersFor(n, scratch),
                                   Begin(segments, n, n)),
                  "UniqueKeys");
}

void PositionsOf(Stream& s, std::size_t n, const Key* keys, std::uint64_t salt, Position* positions) {
  s.native().Note(cuda::PositionsOf(s.native().stream, n, keys, salt, positions), "PositionsOf");
}
void KeysAt(Stream& s, std::size_t n, const Position* positions, std::uint64_t salt, Key* keys) {
  s.native().Note(cuda::KeysAt(s.native().stream, n, positions, salt, keys), "KeysAt");
}

void GroupByRow(Stream& s, std::size_t n, const std::uint32_t* inverse, std::size_t n_rows, SortScratch& scratch,
                Segments& segments) {
  s.native().Note(
      cuda::GroupByRow(s.native().stream, inverse, n_rows, BuffersFor(n, scratch), Begin(segments, n, n_rows)),
      "GroupByRow");
}

void GroupByPartition(Stream& s, std::size_t n, const std::uint32_t* partition_of, std::uint32_t n_partitions,
                      std::uint32_t* permutation, std::uint32_t* offsets, SortScratch& scratch) {
  s.native().Note(cuda::GroupByPartition(s.native().stream, n, partition_of, n_partitions, permutation, offsets,
                                         BuffersFor(n, scratch)),
                  "GroupByPartition");
}

void TopK(Stream& s, std::size_t n, std::size_t k, const float* in, std::uint32_t* index, float* values,
          SortScratch& scratch) {
  TARN_CHECK(k <= n, "k is at most n");
  s.native().Note(cuda::TopK(s.native().stream, n, k, in, index, values, BuffersFor(n, scratch)), "TopK");
}
void RowNorms(Stream& s, std::uint32_t dim, std::size_t n, const float* rows, float* norms) {
  s.native().Note(cuda::RowNorms(s.native().stream, dim, n, rows, norms), "RowNorms");
}

void EmbeddingBagBackward(Stream& s, std::size_t samples, std::uint32_t dim, const float* grad_out,
                          const std::uint32_t* offsets, const float* weights, Segments& segments, float* grad_rows) {
  s.native().Note(cuda::EmbeddingBagBackward(s.native().stream, samples, dim, grad_out, offsets, weights,
                                             ViewFor(dim, segments), grad_rows),
                  "EmbeddingBagBackward");
}
void EmbeddingConcatBackward(Stream& s, std::size_t samples, std::uint32_t fields, std::uint32_t dim,
                             const float* grad_out, std::size_t out_stride, Segments& segments, float* grad_rows) {
  TARN_CHECK(segments.native().view.n == samples * fields, "the segments hold the batch's occurrences");
  s.native().Note(cuda::EmbeddingConcatBackward(s.native().stream, fields, dim, grad_out, out_stride,
                                                ViewFor(dim, segments), grad_rows),
                  "EmbeddingConcatBackward");
}

void FmForward(Stream& s, std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
               const std::uint32_t* offsets, const float* weights, float* out, float* sums) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  s.native().Note(cuda::FmForward(s.native().stream, samples, dim, rows, inverse, offsets, weights, out, sums),
                  "FmForward");
}
void FmBackward(Stream& s, std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* offsets,
                const float* weights, const float* grad_out, const float* sums, Segments* segments, float* grad_rows) {
  if (segments == nullptr)
    s.native().Note(
        cuda::FmBackwardOfOwnRows(s.native().stream, samples, dim, rows, offsets, weights, grad_out, sums, grad_rows),
        "FmBackward");
  else
    s.native().Note(cuda::FmBackward(s.native().stream, samples, dim, rows, offsets, weights, grad_out, sums,
                                     ViewFor(dim, *segments), grad_rows),
                    "FmBackward");
}

void LogisticGradient(Stream& s, std::size_t n, const float* logits, const float* labels, float scale, float* grad) {
  s.native().Note(cuda::LogisticGradient(s.native().stream, n, logits, labels, scale, grad), "LogisticGradient");
}
void SoftmaxCrossEntropyByRow(Stream& s, std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct) {
  s.native().Note(
      cuda::SoftmaxCrossEntropyByRow(s.native().stream, n, classes, logits, labels, scale, grad, losses, correct),
      "SoftmaxCrossEntropyByRow");
}

}  // namespace tarn::kernels
