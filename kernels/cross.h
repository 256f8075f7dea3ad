// The cross layer of DCN v2 (Wang et al., WWW 2021, arXiv:2008.13535): x_{l+1} = x_0 * y + x_l, element by element,
// where y = W x_l + b is a fully connected layer (kernels/gemm.h), or two of them, y = U (V x_l) + b, if W has low
// rank. x and y are samples x width; here they are flat arrays of n = samples * width floats. n may be 0.
//
//   LinearForward(shape, x, w, bias, /*relu=*/false, y);
//   CrossForward(n, x0, y, x, out);
//   ...
//   CrossBackward(n, x0, y, grad_out, grad_y, grad_x0);
//   LinearBackward(shape, x, w, nullptr, /*relu=*/false, grad_y, grad_x, grad_w, grad_bias);
//   Add(n, grad_out, grad_x);   // x is also added as it is
//
// The same bits on every x86-64. Nothing overlaps. Any thread.
#pragma once

#include <cstddef>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// out[i] = x0[i] * y[i] + x[i]; product and sum are rounded separately.
void CrossForward(std::size_t n, const float* x0, const float* y, const float* x, float* out);

// grad_y[i] = grad_out[i] * x0[i], overwritten; grad_x0[i] += grad_out[i] * y[i], since every layer uses x0.
void CrossBackward(std::size_t n, const float* x0, const float* y, const float* grad_out, float* grad_y,
                   float* grad_x0);

// On a GPU.
void CrossForward(Stream& stream, std::size_t n, const float* x0, const float* y, const float* x, float* out);
void CrossBackward(Stream& stream, std::size_t n, const float* x0, const float* y, const float* grad_out, float* grad_y,
                   float* grad_x0);

}  // namespace tarn::kernels
