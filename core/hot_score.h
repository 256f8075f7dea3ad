// What makes a row that workers keep worth its place (kernels/hot_rows.h): how lately it was looked for, or how often.
#pragma once

#include <cstdint>

namespace tarn {

enum class HotScore : std::uint8_t { kLru, kLfu };

}  // namespace tarn
