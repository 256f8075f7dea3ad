// Shows that all programs of a user store the algorithms of matrix products in one file.
#include "worker/train/algorithms_file.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

TEST(AlgorithmsFile, IsInTheCacheFolderOrInTheGivenOne) {
  EXPECT_EQ(AlgorithmsFile("/var/cache", "/home/a", "/run/1"), "/var/cache/tarn/gemm-algorithms");
  EXPECT_EQ(AlgorithmsFile(nullptr, "/home/a", "/run/1"), "/home/a/.cache/tarn/gemm-algorithms");
  EXPECT_EQ(AlgorithmsFile(nullptr, nullptr, "/run/1"), "/run/1/gemm-algorithms");
  EXPECT_EQ(AlgorithmsFile(nullptr, nullptr, ""), "") << "nothing is kept";
}

}  // namespace
}  // namespace tarn::worker
