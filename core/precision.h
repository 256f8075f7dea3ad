// The number format of the factors of matrix products. Sums, parameters and gradients are fp32 in all of them.
#pragma once

#include <cstdint>

namespace tarn {

// kTf32 (fp32 of which the multiplication takes the upper 19 bits) and kFp16 are formats of GPUs: on a CPU they are
// computed as kFp32. fp16 overflows above 65,504 and underflows for small values, so its users scale the loss.
enum class Precision : std::uint8_t { kFp32, kBf16, kTf32, kFp16 };

}  // namespace tarn
