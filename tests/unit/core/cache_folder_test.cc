// Shows in which folder measurements are stored between runs.
#include "core/cache_folder.h"

#include <gtest/gtest.h>

namespace tarn {
namespace {

TEST(CacheFolder, IsWhereTheEnvironmentSays) {
  EXPECT_EQ(CacheFolder("/var/cache", "/home/a"), "/var/cache/tarn");
  EXPECT_EQ(CacheFolder(nullptr, "/home/a"), "/home/a/.cache/tarn");
  EXPECT_EQ(CacheFolder("", "/home/a"), "/home/a/.cache/tarn");
  EXPECT_EQ(CacheFolder("relative", "/home/a"), "/home/a/.cache/tarn") << "which the specification has ignored";
  EXPECT_EQ(CacheFolder(nullptr, nullptr), "");
  EXPECT_EQ(CacheFolder("relative", ""), "");
}

}  // namespace
}  // namespace tarn
