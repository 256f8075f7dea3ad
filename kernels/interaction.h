// DLRM's dot interaction (Naumov et al., 2019, arXiv:1906.00091): a sample's first vector (the bottom MLP's output),
// followed by the pairwise dot products of its vectors.
//
// in: samples x vectors x dim, vector 0 first. out: samples x InteractionWidth(vectors, dim):
//   [vector 0 (dim floats) | <1,0> | <2,0> <2,1> | <3,0> <3,1> <3,2> | ...]
// Each dot product sums in the order of the dimensions; the same bits on every x86-64. The shape is within the bounds
// below. Nothing overlaps. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// Bounds of one sample: on vectors * dim, and on vectors, so that the number of pairs fits 32 bits. Neither vectors nor
// dim is 0.
inline constexpr std::size_t kInteractionFloatsMax = std::size_t{1} << 18;
inline constexpr std::uint32_t kInteractionVectorsMax = 1u << 16;

constexpr bool IsInteraction(std::uint32_t vectors, std::uint32_t dim) {
  return vectors >= 1 && vectors <= kInteractionVectorsMax && dim >= 1 &&
         std::size_t{vectors} * dim <= kInteractionFloatsMax;
}

constexpr std::size_t InteractionWidth(std::uint32_t vectors, std::uint32_t dim) {
  return dim + std::size_t{vectors} * (vectors - 1) / 2;
}

void InteractionForward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out);

// grad_in (shaped as in, overwritten) from grad_out (shaped as out).
void InteractionBackward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                         const float* grad_out, float* grad_in);

// On a GPU.
void InteractionForward(Stream& stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                        float* out);
void InteractionBackward(Stream& stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                         const float* grad_out, float* grad_in);

}  // namespace tarn::kernels
