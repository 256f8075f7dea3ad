// Embedding look-ups: from unique rows to the inputs of a batch's samples, and the gradients back.
//
// `rows` is n_unique x dim; inverse[o] < n_unique is the row of occurrence o.
//   Bag:     sample s has the occurrences offsets[s] ... offsets[s + 1), offsets[0] may be > 0 (a slice of a batch);
//            its input is the sum of their rows, each times its weight.
//   Concat:  every sample has `fields` occurrences, from s * fields on; its input is their rows side by side.
//
// Sums run in the order of the occurrences; the same bits on every x86-64. *Backward adds to grad_rows (n_unique x
// dim), so that several uses of a table sum up: the caller zeroes it first (Fill). `weights` has one value per
// occurrence; null: all 1. Nothing overlaps. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Segments;  // kernels/segments.h
class Stream;    // kernels/stream.h

// out[s] = sum over o of weights[o] * rows[inverse[o]]; samples x dim; 0 for an empty bag.
void EmbeddingBagForward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
                         const std::uint32_t* offsets, const float* weights, float* out);

// grad_rows[inverse[o]] += weights[o] * grad_out[s], grad_out samples x dim.
void EmbeddingBagBackward(std::size_t samples, std::uint32_t dim, const float* grad_out, const std::uint32_t* inverse,
                          const std::uint32_t* offsets, const float* weights, float* grad_rows);

// out[s * out_stride + f * dim ... + dim) = rows[inverse[s * fields + f]]. out_stride >= fields * dim floats: a
// larger one leaves room for other features of the sample (which are not touched).
void EmbeddingConcatForward(std::size_t samples, std::uint32_t fields, std::uint32_t dim, const float* rows,
                            const std::uint32_t* inverse, float* out, std::size_t out_stride);

// grad_rows[inverse[s * fields + f]] += grad_out[s * out_stride + f * dim ... + dim).
void EmbeddingConcatBackward(std::size_t samples, std::uint32_t fields, std::uint32_t dim, const float* grad_out,
                             std::size_t out_stride, const std::uint32_t* inverse, float* grad_rows);

// The constant feature: row `*row` of `rows`, which are single floats, is added to every sample.
// out[s] += rows[*row]; grad_rows[*row] += the sum of grad_out, in double, rounded once.
void BiasForward(std::size_t samples, const float* rows, const std::uint32_t* row, float* out);
void BiasBackward(std::size_t samples, const float* grad_out, const std::uint32_t* row, float* grad_rows);

// On a GPU. BiasBackward: the sum is in double too, in an order that depends on `samples` alone. A batch of
// EmbeddingConcatForward has less than 2^31 occurrences.
void BiasForward(Stream& stream, std::size_t samples, const float* rows, const std::uint32_t* row, float* out);
void BiasBackward(Stream& stream, std::size_t samples, const float* grad_out, const std::uint32_t* row,
                  float* grad_rows);
void EmbeddingBagForward(Stream& stream, std::size_t samples, std::uint32_t dim, const float* rows,
                         const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights, float* out);
void EmbeddingConcatForward(Stream& stream, std::size_t samples, std::uint32_t fields, std::uint32_t dim,
                            const float* rows, const std::uint32_t* inverse, float* out, std::size_t out_stride);

// Backward on a GPU: `segments` replaces `inverse`; they group inverse[offsets[0]] ... inverse[offsets[samples] - 1],
// or inverse[0] ... inverse[samples * fields - 1]. Rows are at most as wide as the segments allow. Sums run in the
// order that kernels/segments.h defines: the CPU's bits for rows with at most 64 occurrences.
void EmbeddingBagBackward(Stream& stream, std::size_t samples, std::uint32_t dim, const float* grad_out,
                          const std::uint32_t* offsets, const float* weights, Segments& segments, float* grad_rows);
void EmbeddingConcatBackward(Stream& stream, std::size_t samples, std::uint32_t fields, std::uint32_t dim,
                             const float* grad_out, std::size_t out_stride, Segments& segments, float* grad_rows);

}  // namespace tarn::kernels
