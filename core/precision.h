// In which format the factors of matrix products are held. Sums, parameters and gradients are fp32 in all of them.
#pragma once

#include <cstdint>

namespace tarn {

// kTf32 (fp32 of which the multiplication takes the upper 19 bits) and kFp16 are formats of GPUs: on a CPU they are
// computed as kFp32. fp16 holds nothing above 65,504 and loses what is small: who uses it scales the loss.
enum class Precision : std::uint8_t { kFp32, kBf16, kTf32, kFp16 };

}  // namespace tarn
