// The processor's maximum rate of multiply-adds: the upper bound of every matrix product.
#pragma once

#include <cstddef>

namespace tarn::bench {

// Runs fused multiply-adds of fp32 in registers, on one thread, with the widest vectors that the kernels use. Returns
// the number of floating-point operations, two per multiply-add; at least `operations`.
double MultiplyAdds(double operations);

}  // namespace tarn::bench
