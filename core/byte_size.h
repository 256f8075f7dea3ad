// Text form of byte sizes: "8GiB", "512MiB", "100KiB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

// Parses an integer with an optional unit KiB, MiB, GiB or TiB, with or without a space between them. kInvalidArgument
// for other text, and for more than 2^63 - 1.
Expected<std::uint64_t> ParseByteSize(std::string_view text);

// `bytes` exactly, in the largest unit that divides it: 1536 -> "1536", 1 << 30 -> "1GiB".
std::string ToByteSize(std::uint64_t bytes);

}  // namespace tarn
