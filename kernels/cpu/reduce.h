// The summation order of most reductions over floats: eight partial sums in double (kernels/elementwise.h).
#pragma once

#include <cstddef>

namespace tarn::kernels {

inline constexpr std::size_t kPartialSums = 8;

[[gnu::always_inline]] inline double SumOfPartialSums(const double* s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// The sum of term(i), a double, for i in [0, n).
template <typename Term>
[[gnu::always_inline]] inline double SumOfTerms(std::size_t n, Term term) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    s0 += term(i);
    s1 += term(i + 1);
    s2 += term(i + 2);
    s3 += term(i + 3);
    s4 += term(i + 4);
    s5 += term(i + 5);
    s6 += term(i + 6);
    s7 += term(i + 7);
  }
  if (i < n) s0 += term(i);
  if (i + 1 < n) s1 += term(i + 1);
  if (i + 2 < n) s2 += term(i + 2);
  if (i + 3 < n) s3 += term(i + 3);
  if (i + 4 < n) s4 += term(i + 4);
  if (i + 5 < n) s5 += term(i + 5);
  if (i + 6 < n) s6 += term(i + 6);
  const double sums[kPartialSums] = {s0, s1, s2, s3, s4, s5, s6, s7};
  return SumOfPartialSums(sums);
}

}  // namespace tarn::kernels
