// Shows that the figures a program reports become lines of metrics.jsonl, once a second, with the mean of that second.
#include "worker/runtime/reports.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/json.h"

namespace tarn::worker {
namespace {

class ReportsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Status Add(std::uint64_t clock, const std::vector<Figure>& figures, double now) {
    return reports_.Add(Clock(clock), figures, now);
  }
  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    std::ifstream file(folder_ + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  const std::string folder_ =
      testing::TempDir() + "reports-" + testing::UnitTest::GetInstance()->current_test_info()->name();
  Reports reports_{3, folder_};
};

TEST_F(ReportsTest, ALineHasTheMeanOfASecond) {
  EXPECT_TRUE(Add(1, {{"loss", 1}}, 100.0));
  EXPECT_TRUE(Add(2, {{"loss", 2}, {"hr", 0.5}}, 100.4));
  EXPECT_TRUE(Add(3, {{"loss", 4}}, 101.1));
  EXPECT_TRUE(Add(4, {{"loss", 9}}, 101.2));
  std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["role"], "program");
  EXPECT_EQ(lines[0]["rank"], 3);
  EXPECT_EQ(lines[0]["clock"], 1);
  EXPECT_EQ(lines[0]["loss"], 1.0);
  EXPECT_EQ(lines[1]["clock"], 3);
  EXPECT_EQ(lines[1]["loss"], 3.0);
  EXPECT_EQ(lines[1]["hr"], 0.5);
  EXPECT_TRUE(reports_.Flush());
  EXPECT_TRUE(reports_.Flush());
  lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2]["loss"], 9.0);
}

TEST_F(ReportsTest, NamesOfFixedFieldsAreRefused) {
  const Status refused = Add(1, {{"loss", 1}, {"rank", 1}}, 100);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "report: 'rank' is a field of every line, expected another name");
  EXPECT_FALSE(Add(1, {{"", 1}}, 100));
  EXPECT_TRUE(Lines().empty()) << "nor anything beside it";
}

TEST_F(ReportsTest, AMeanThatIsNotFiniteIsNull) {
  EXPECT_TRUE(Add(1, {{"loss", INFINITY}}, 100));
  EXPECT_TRUE(Add(1, {{"loss", 1}, {"hr", 1}}, 102));
  EXPECT_TRUE(Add(2, {{"loss", NAN}, {"hr", 2}}, 102.5));
  EXPECT_TRUE(Add(3, {{"loss", 1}}, 104));
  EXPECT_TRUE(reports_.Flush());
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].at("loss").is_null());
  EXPECT_EQ(lines[1]["hr"], 1.0);
  EXPECT_TRUE(lines[2].at("loss").is_null());
}

TEST_F(ReportsTest, WithoutARunNothingIsWritten) {
  Reports reports(0, "");
  const std::vector<Figure> figures{{"loss", 1}};
  EXPECT_TRUE(reports.Add(Clock(1), figures, 100));
  EXPECT_TRUE(reports.Flush());
}

TEST_F(ReportsTest, AMissingFolderIsAnError) {
  Reports reports(0, folder_ + "/nowhere");
  const std::vector<Figure> figures{{"loss", 1}};
  const Status failed = reports.Add(Clock(1), figures, 100);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tarn::worker
