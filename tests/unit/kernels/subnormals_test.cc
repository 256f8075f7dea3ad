// Shows that subnormals are zero within the scope and in threads that it starts, and nowhere else.
#include "kernels/subnormals.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace tarn::kernels {
namespace {

// volatile: computed at run time, not by the compiler.
template <typename T>
T Halved(T x) {
  volatile T operand = x;
  return operand / 2;
}

template <typename T>
T Doubled(T x) {
  volatile T operand = x;
  return operand * 2;
}

template <typename T>
void ExpectSubnormals(bool kept) {
  using Limits = std::numeric_limits<T>;
  EXPECT_EQ(Halved(Limits::min()) != 0, kept) << "as a result";
  EXPECT_EQ(Doubled(Limits::denorm_min()) != 0, kept) << "as an operand";
  EXPECT_EQ(Halved(2 * Limits::min()), Limits::min());
}

TEST(SubnormalsTest, AreZeroInTheScopeAndInThreadsThatItStarts) {
  ExpectSubnormals<float>(true);
  {
    const SubnormalsAreZero outer;
    {
      const SubnormalsAreZero inner;
      ExpectSubnormals<float>(false);
    }
    ExpectSubnormals<float>(false);
    ExpectSubnormals<double>(false);
    std::thread([] { ExpectSubnormals<float>(false); }).join();
  }
  ExpectSubnormals<float>(true);
  ExpectSubnormals<double>(true);
  std::thread([] { ExpectSubnormals<float>(true); }).join();
}

}  // namespace
}  // namespace tarn::kernels
