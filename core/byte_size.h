// Amounts of bytes as people write them: "8GiB", "512MiB", "100KiB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

// A whole number, and KiB, MiB, GiB or TiB or nothing behind it, with or without a space. kInvalidArgument otherwise,
// and beyond 2^63 - 1.
Expected<std::uint64_t> ParseByteSize(std::string_view text);

// The shortest such text.
std::string ToByteSize(std::uint64_t bytes);

}  // namespace tarn
