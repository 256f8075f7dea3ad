// The sum of a row's terms as kernels/segments.h specifies it, computed without the kernels' positions and slots.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tarn::kernels {

// Sums each run of 64 terms in order.
inline std::vector<float> SumsOf64(const std::vector<float>& terms) {
  std::vector<float> sums;
  for (std::size_t i = 0; i < terms.size(); i += 64) {
    float sum = 0.0f;
    for (std::size_t k = i; k < std::min(i + 64, terms.size()); ++k) sum += terms[k];
    sums.push_back(sum);
  }
  return sums;
}

// The result of adding the terms to `there`.
inline float AddInPieces(float there, std::vector<float> terms) {
  if (terms.size() > 64)
    while (terms.size() > 1) terms = SumsOf64(terms);
  for (const float term : terms) there += term;
  return there;
}

}  // namespace tarn::kernels
