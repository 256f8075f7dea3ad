// Well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tarn {

// Length of the well-formed sequence at the beginning of `text`, 1 to 4; 0 if there is none.
constexpr std::size_t Utf8Length(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (at(i) & 0xc0u) == 0x80u; };
  const unsigned first = at(0);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0u : 0x80u, high = first == 0xed ? 0x9fu : 0xbfu;
    return at(1) >= low && at(1) <= high && continues(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90u : 0x80u, high = first == 0xf4 ? 0x8fu : 0xbfu;
    return at(1) >= low && at(1) <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

// Whether all characters of `text` are ASCII. Tests eight bytes at a time: IsUtf8 calls it first, because most
// texts are ASCII.
constexpr bool IsAscii(std::string_view text) {
  std::uint64_t seen = 0;
  std::size_t i = 0;
  if (!std::is_constant_evaluated()) {
    for (std::uint64_t word = 0; i + sizeof(word) <= text.size(); i += sizeof(word)) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      seen |= word;
    }
  }
  for (; i < text.size(); ++i) seen |= static_cast<unsigned char>(text[i]);
  return (seen & 0x8080808080808080u) == 0;
}

// Whether all of `text` is well-formed.
constexpr bool IsUtf8(std::string_view text) {
  if (IsAscii(text)) return true;
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace tarn
