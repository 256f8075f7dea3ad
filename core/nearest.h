// Finds the known word nearest to a misspelt one, for error messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tarn {

// The minimum number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`: the optimal
// string alignment distance (Damerau, A technique for computer detection and correction of spelling errors, 1964). Time
// a.size() * b.size().
inline std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

// The first of `known` with the minimum distance to `word`; empty if `known` is empty. Only the first 64 bytes of
// `word` are compared.
inline std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known) {
  word = word.substr(0, 64);
  std::string_view best;
  std::size_t best_distance = ~std::size_t{0};
  for (std::string_view candidate : known) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

// Whether `word` may be a misspelling of `known`: the distance of its first 64 bytes is at most half its length.
inline bool IsNear(std::string_view word, std::string_view known) {
  word = word.substr(0, 64);
  return EditDistance(word, known) * 2 <= word.size();
}

}  // namespace tarn
