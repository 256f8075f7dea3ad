// Small generated sets in memory.
#pragma once

#include <string>

#include "tools/generate/generator.h"

namespace tarn::generate {

// The lines of rows [first, first + rows).
inline std::string CriteoText(const Generator& generator, std::uint64_t first, std::size_t rows) {
  std::string text;
  char line[kGeneratedLineBytesMax];
  Row row;
  for (std::size_t i = 0; i < rows; ++i) {
    generator.Make(first + i, &row);
    text.append(line, static_cast<std::size_t>(WriteLine(row, line) - line));
  }
  return text;
}

}  // namespace tarn::generate
