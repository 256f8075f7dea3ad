// The processor's maximum rate of multiply-adds: the upper bound of every matrix product.
#pragma once

#include <cstddef>

namespace tarn::bench {

// Fused multiply-adds of fp32 on registers alone, on one thread, by the widest vectors that the kernels use. Returns
// how many floating-point operations that were, two for each multiply-add; at least `operations`.
double MultiplyAdds(double operations);

}  // namespace tarn::bench
