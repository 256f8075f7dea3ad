// The factorization machine's second-order term (Rendle, ICDM 2010, Lemma 3.1), in time linear in the occurrences:
//   y[s] = sum over pairs o < p of sample s of <v_o, v_p> x_o x_p = 1/2 (|sum x v|^2 - sum |x v|^2)
// with v_o = rows[inverse[o]] (dim floats) and x_o = weights[o], or 1 if `weights` is null. Sample s has the
// occurrences offsets[s] ... offsets[s + 1). `inverse` may be null: occurrence o then has row o.
//
// Sums run in a fixed order; the same bits on every x86-64. The arrays must not overlap. dim is 1..limits::kRowDimMax.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Segments;  // kernels/segments.h
class Stream;    // kernels/stream.h

// out: samples floats. sums: samples x dim floats, sum x v of every sample, kept for the backward pass.
void FmForward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
               const std::uint32_t* offsets, const float* weights, float* out, float* sums);

// grad_rows[inverse[o]] += grad_out[s] * x_o * (sums[s] - x_o v_o). grad_rows is shaped as `rows`. The caller zeroes it
// first, or keeps in it the gradients of other uses of the table.
void FmBackward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
                const std::uint32_t* offsets, const float* weights, const float* grad_out, const float* sums,
                float* grad_rows);

// On a GPU. Backward takes `segments` instead of `inverse`: the grouping of inverse[offsets[0]] ...
// inverse[offsets[samples] - 1], with a capacity of at least `dim` floats per row. If it is null, occurrence o has row
// o. Sums run in the order that kernels/segments.h defines: the CPU's bits for rows with at most 64 occurrences.
void FmForward(Stream& stream, std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
               const std::uint32_t* offsets, const float* weights, float* out, float* sums);
void FmBackward(Stream& stream, std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* offsets,
                const float* weights, const float* grad_out, const float* sums, Segments* segments, float* grad_rows);

}  // namespace tarn::kernels
