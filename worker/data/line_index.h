// An index of the lines of a text: one pass over the bytes, then any line is found with a short scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string_view>
#include <vector>

namespace tarn::worker {

// Immutable after construction: any thread may read.
class LineIndex {
 public:
  LineIndex() = default;
  // Indexes the first `lines_max` lines; 0: all. The text must outlive the index. The last line needs no line feed. A
  // stop request ends the pass soon; the index then has only the lines up to there.
  LineIndex(std::string_view text, std::uint64_t lines_max, const std::stop_token& stop = {});

  std::uint64_t lines() const { return lines_; }
  // Offset of line `line`, which must be below lines().
  std::size_t Offset(std::uint64_t line) const;

 private:
  static constexpr std::uint64_t kStride = 64;  // 8 bytes of index per 64 lines
  std::string_view text_;
  std::uint64_t lines_ = 0;
  std::vector<std::size_t> offsets_;  // of every kStride-th line
};

// End of the line that begins at `offset`: its line feed, or the text's end.
inline std::size_t LineEnd(std::string_view text, std::size_t offset) {
  const std::size_t end = text.find('\n', offset);
  return end == std::string_view::npos ? text.size() : end;
}

}  // namespace tarn::worker
