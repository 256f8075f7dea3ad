// Shows the program's log: the format of a line, levels, several threads at once, and the limit on repeated lines.
#include "core/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <thread>

#include "core/file.h"

namespace tarn {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("tarn-log-" + std::to_string(::getpid()))).string();
    std::filesystem::remove(path_);
  }
  void TearDown() override {
    ASSERT_TRUE(InitLog({.role = "test", .level = LogLevel::kError}));
    std::filesystem::remove(path_);
  }
  std::string Text() {
    FlushLog();
    return ReadFile(path_, 1 << 20).value_or("");
  }
  std::size_t Lines() {
    const std::string text = Text();
    return std::size_t(std::count(text.begin(), text.end(), '\n'));
  }

  std::string path_;
};

TEST_F(LogTest, LineHasTimeLevelRoleAndText) {
  ASSERT_TRUE(InitLog({.role = "server-0 100%", .path = path_}));
  LogInfo("serving {} partitions", 64);
  EXPECT_TRUE(std::regex_match(Text(), std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} I server-0 100% \| )"
                                                  "serving 64 partitions\n")))
      << Text();
}

TEST_F(LogTest, LevelsBelowTheSetOneAreDropped) {
  ASSERT_TRUE(InitLog({.role = "r", .path = path_, .level = LogLevel::kWarning}));
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  LogInfo("no");
  LogWarning("yes");
  LogError("yes");
  EXPECT_EQ(Lines(), 2u);
}

TEST_F(LogTest, AToldLineIsInTheLogAndOnceOnTheTerminal) {
  ASSERT_TRUE(InitLog({.role = "r", .path = path_}));
  testing::internal::CaptureStderr();
  LogAndPrint(LogLevel::kWarning, "tarn-server", "waits");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tarn-server: waits\n");
  EXPECT_EQ(Lines(), 1u);

  ASSERT_TRUE(InitLog({.role = "r", .also_stderr = true}));
  testing::internal::CaptureStderr();
  LogAndPrint(LogLevel::kWarning, "tarn-server", "waits");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_TRUE(text.ends_with("r | waits\n")) << text;
}

TEST_F(LogTest, BracesInAPlainMessageAreText) {
  ASSERT_TRUE(InitLog({.role = "r", .path = path_}));
  Log(LogLevel::kInfo, "{} %v {0}");
  EXPECT_NE(Text().find("| {} %v {0}\n"), std::string::npos);
}

TEST_F(LogTest, LinesOfSeveralThreadsAreWhole) {
  ASSERT_TRUE(InitLog({.role = "r", .path = path_}));
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) LogInfo("thread {} line {} end", t, i);
    });
  threads.clear();
  EXPECT_EQ(Lines(), 800u);
  const std::string text = Text();
  const std::regex line(R"(\| thread \d line \d+ end\n)");
  EXPECT_EQ(std::distance(std::sregex_iterator(text.begin(), text.end(), line), std::sregex_iterator()), 800);
}

TEST_F(LogTest, UnwritableFileIsAnError) {
  for (const std::string& path : {std::string("/dev/null/x.log"), std::filesystem::temp_directory_path().string()}) {
    const auto status = InitLog({.role = "r", .path = path});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    EXPECT_NE(status.error().message.find(path), std::string::npos);
  }
}

TEST_F(LogTest, LimiterLetsOneASecondThroughAndCounts) {
  LogLimiter limiter;
  std::uint64_t suppressed = 99;
  EXPECT_TRUE(limiter.Allow(0, suppressed));
  EXPECT_EQ(suppressed, 0u);
  for (TimeUs now : {0, 1, 999'999}) EXPECT_FALSE(limiter.Allow(now, suppressed));
  EXPECT_TRUE(limiter.Allow(1'000'000, suppressed));
  EXPECT_EQ(suppressed, 3u);
  EXPECT_TRUE(limiter.Allow(5'000'000, suppressed));
  EXPECT_EQ(suppressed, 0u);
}

TEST_F(LogTest, LimitedLinesAreWrittenOnceASecond) {
  ASSERT_TRUE(InitLog({.role = "r", .path = path_}));
  LogLimiter limiter;
  for (int i = 0; i < 50; ++i) LogWarning(limiter, "bad frame {}", i);
  EXPECT_LE(Lines(), 2u);  // two only if the clock crossed a second
  EXPECT_NE(Text().find("bad frame 0\n"), std::string::npos);
}

}  // namespace
}  // namespace tarn
