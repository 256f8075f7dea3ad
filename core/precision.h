// In which format the factors of matrix products are held. Sums, parameters and gradients are fp32 in all of them.
#pragma once

#include <cstdint>

namespace tarn {

enum class Precision : std::uint8_t { kFp32, kBf16 };

}  // namespace tarn
