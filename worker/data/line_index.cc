#include "worker/data/line_index.h"

namespace tarn::worker {

LineIndex::LineIndex(std::string_view text, std::uint64_t lines_max) : text_(text) {
  for (std::size_t offset = 0; offset < text.size() && (lines_max == 0 || lines_ < lines_max); ++lines_) {
    if (lines_ % kStride == 0) offsets_.push_back(offset);
    offset = LineEnd(text, offset) + 1;
  }
}

std::size_t LineIndex::Offset(std::uint64_t line) const {
  std::size_t offset = offsets_[line / kStride];
  for (std::uint64_t i = line % kStride; i > 0; --i) offset = LineEnd(text_, offset) + 1;
  return offset;
}

}  // namespace tarn::worker
