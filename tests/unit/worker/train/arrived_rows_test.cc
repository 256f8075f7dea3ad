// Shows that rows which arrive in the host's memory are used without a copy, and kept until they are released.
#include "worker/train/arrived_rows.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

TEST(ArrivedRowsTest, RowsInTheHostsMemoryAreNotCopied) {
  const auto place = MakeHostPlace();
  ArrivedRows rows;
  rows.Begin(true);
  EXPECT_FALSE(rows.complete());
  Buffer values = Buffer::Allocate(2 * sizeof(float));
  values.as_mutable<float>()[1] = 5;
  const void* const where = std::as_const(values).data();
  ASSERT_TRUE(rows.Bring(place.get(), std::move(values), Clock(7)));
  EXPECT_TRUE(rows.complete());
  EXPECT_EQ(rows.version(), Clock(7));
  EXPECT_EQ(rows.data(), where);
  EXPECT_EQ(rows.data()[1], 5);
  rows.Release();
  rows.Begin(false);
  EXPECT_TRUE(rows.complete()) << "there is nothing to wait for";
}

}  // namespace
}  // namespace tarn::worker
