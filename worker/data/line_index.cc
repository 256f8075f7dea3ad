#include "worker/data/line_index.h"

#include <algorithm>

namespace tarn::worker {

LineIndex::LineIndex(std::string_view text, std::uint64_t lines_max, const std::stop_token& stop) : text_(text) {
  constexpr std::uint64_t kLinesPerCheck = 4096;  // of `stop`
  for (std::size_t offset = 0; offset < text.size() && (lines_max == 0 || lines_ < lines_max); ++lines_) {
    if (lines_ % kLinesPerCheck == 0 && stop.stop_requested()) return;
    if (lines_ % kStride == 0) offsets_.push_back(offset);
    offset = LineEnd(text, offset) + 1;
  }
}

std::size_t LineIndex::Offset(std::uint64_t line) const {
  std::size_t offset = offsets_[line / kStride];
  // A truncated file may have fewer lines than before.
  for (std::uint64_t i = line % kStride; i > 0; --i) offset = std::min(LineEnd(text_, offset) + 1, text_.size());
  return offset;
}

}  // namespace tarn::worker
