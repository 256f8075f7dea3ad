// Replacement policy of the hot rows that workers keep (kernels/hot_rows.h): least recently or least frequently used.
#pragma once

#include <cstdint>

namespace tarn {

enum class HotScore : std::uint8_t { kLru, kLfu };

}  // namespace tarn
