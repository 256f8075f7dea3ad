// The main function of the unit tests. --source=FILE runs only the tests of one source file, named by its path below
// the repository's root (tests/unit/core/hash_test.cc): ctest has one entry per file.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace {

// Removes --source=FILE from the arguments and returns FILE.
std::optional<std::string> TakeSource(int* argc, char** argv) {
  constexpr std::string_view kOption = "--source=";
  std::optional<std::string> source;
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kOption))
      source = argument.substr(kOption.size());
    else
      argv[kept++] = argv[i];
  }
  *argc = kept;
  return source;
}

// A filter for the tests of a source file; empty if it has none.
std::string FilterOf(std::string_view source) {
  const std::string ending = fmt::format("/{}", source);
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (fmt::format("/{}", test.file()).ends_with(ending))
        filter += fmt::format("{}.{}:", test.test_suite_name(), test.name());
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const std::optional<std::string> source = TakeSource(&argc, argv)) {
    const std::string filter = FilterOf(*source);
    if (filter.empty()) {
      fmt::print(stderr, "{}: no test in this program is of the source file '{}'\n", argv[0], *source);
      return 2;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
