#include "kernels/cross.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

void Forward(std::size_t n, const float* HWY_RESTRICT x0, const float* HWY_RESTRICT y, const float* HWY_RESTRICT x,
             float* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x0[i] * y[i] + x[i];
}

void Backward(std::size_t n, const float* HWY_RESTRICT x0, const float* HWY_RESTRICT y,
              const float* HWY_RESTRICT grad_out, float* HWY_RESTRICT grad_y, float* HWY_RESTRICT grad_x0) {
  for (std::size_t i = 0; i < n; ++i) {
    grad_y[i] = grad_out[i] * x0[i];
    grad_x0[i] += grad_out[i] * y[i];
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

void CrossForward(std::size_t n, const float* x0, const float* y, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(Forward)(n, x0, y, x, out);
}

void CrossBackward(std::size_t n, const float* x0, const float* y, const float* grad_out, float* grad_y,
                   float* grad_x0) {
  HWY_DYNAMIC_DISPATCH(Backward)(n, x0, y, grad_out, grad_y, grad_x0);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
