#include "bench/multiply_adds.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/multiply_adds.cc"
#include "hwy/foreach_target.h"  // compiles the loop below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::bench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains keep two FMA units busy: each unit starts one operation per cycle, with a latency of four
// or five cycles.
double Loop(double operations) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  auto a = hn::Set(d, 1.0f), b = a, c = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, m = a;
  const double each = 12 * 2 * static_cast<double>(hn::Lanes(d));
  const auto rounds = static_cast<std::size_t>(operations / each) + 1;
  for (std::size_t round = 0; round < rounds; ++round)
    for (auto* chain : {&a, &b, &c, &e, &f, &g, &h, &i, &j, &k, &l, &m}) *chain = hn::MulAdd(*chain, factor, term);
  auto sum = hn::Zero(d);
  for (const auto* chain : {&a, &b, &c, &e, &f, &g, &h, &i, &j, &k, &l, &m}) sum = hn::Add(sum, *chain);
  volatile float kept = hn::GetLane(sum);  // prevents the compiler from removing the loop
  static_cast<void>(kept);
  return static_cast<double>(rounds) * each;
}

}  // namespace
}  // namespace tarn::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::bench {

HWY_EXPORT(Loop);

double MultiplyAdds(double operations) { return HWY_DYNAMIC_DISPATCH(Loop)(operations); }

}  // namespace tarn::bench
#endif
