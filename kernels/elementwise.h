// Operations on flat arrays of n floats; n may be 0. The same bits on every x86-64 in one mode of subnormals
// (kernels/subnormals.h), whatever the alignment. Arrays must not overlap, except where they may be equal (in place),
// as stated. Any thread.
//
// Reductions have a fixed summation order: element i is added, in double, to partial sum i mod 8, in the order of i;
// then ((s0+s4)+(s2+s6)) + ((s1+s5)+(s3+s7)).
#pragma once

#include <cstddef>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// out[i] = value.
void Fill(std::size_t n, float value, float* out);

// out[i] += in[i].
void Add(std::size_t n, const float* in, float* out);

// out[i] *= factor.
void Scale(std::size_t n, float factor, float* out);

// out[i] = max(out[i], 0). A NaN becomes 0, as in cuBLASLt's fused layers, so that CPU and GPU agree.
void Relu(std::size_t n, float* out);

// dy[i] = 0 where y[i] is 0; y is the result of Relu.
void ReluBackward(std::size_t n, const float* y, float* dy);

// Sum of in[i].
double Sum(std::size_t n, const float* in);

// Sum of a[i] * b[i]. a may be b.
double Dot(std::size_t n, const float* a, const float* b);

// Sum of in[i]^2.
double SquaredNorm(std::size_t n, const float* in);

// Returns whether no in[i] is infinite or NaN.
bool AllFinite(std::size_t n, const float* in);

// out[i] = in[i]. Returns whether no out[i] is infinite or NaN. Reads each in[i] once, because another process may
// write to it meanwhile.
bool CopyAllFinite(std::size_t n, const float* in, float* out);

// The factor that scales a gradient with this squared norm (over all of its arrays) to a norm of at most norm_max:
// norm_max / norm if the norm is larger, else 1. 1 if norm_max is 0 (off); else NaN if the squared norm is not finite.
float ClipScale(double squared_norm, float norm_max);

// On a GPU.
void Fill(Stream& stream, std::size_t n, float value, float* out);
void Add(Stream& stream, std::size_t n, const float* in, float* out);
void Scale(Stream& stream, std::size_t n, float factor, float* out);
void Relu(Stream& stream, std::size_t n, float* out);
void ReluBackward(Stream& stream, std::size_t n, const float* y, float* dy);

// Clipping on a GPU, without a transfer to the host. `parts` are kNormParts doubles of device memory, zeroed beforehand
// (Fill of twice as many floats).
//   AddSquaredNorm: adds the sum of in[i]^2 to the parts, in an order that depends on n alone.
//   ClipScale: for arrays that hold a gradient times `unit`, with the sum of the parts as their squared norm. Sets
//   *factor to what divides them by `unit` and limits the gradient's norm to norm_max (0: no limit). parts[0] becomes
//   the sum of the parts.
//   Scale: out[i] *= *factor.
inline constexpr std::size_t kNormParts = 512;
void AddSquaredNorm(Stream& stream, std::size_t n, const float* in, double* parts);
void ClipScale(Stream& stream, double* parts, float unit, float norm_max, float* factor);
void Scale(Stream& stream, std::size_t n, const float* factor, float* out);

}  // namespace tarn::kernels
