// Shows that distributions are read as they are written, and which texts are refused.
#include "core/job/distribution.h"

#include <gtest/gtest.h>

namespace tarn {
namespace {

TEST(DistributionTest, ReadsWhatItWrites) {
  for (const char* text :
       {"0", "0.01", "5e-05", "uniform(0.01, 0.02)", "exponential(3)", "lognormal(0.01, 0.5)", "pareto(0.25, 1.5)"}) {
    const auto parsed = ParseDistribution(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(ToString(*parsed), text);
    EXPECT_EQ(ParseDistribution(ToString(*parsed)), *parsed);
  }
}

TEST(DistributionTest, SpacesAreIgnored) {
  EXPECT_EQ(ParseDistribution("  uniform( 1 ,2 ) "), (Distribution{Distribution::Kind::kUniform, 1, 2}));
  EXPECT_EQ(ParseDistribution("constant(2)"), (Distribution{Distribution::Kind::kConstant, 2}));
}

TEST(DistributionTest, TheErrorOfOtherTextSaysWhatIsExpected) {
  for (const char* text :
       {"", "-1", "nan", "inf", "1e7", "1 2", "uniform", "uniform(1)", "uniform(2, 1)", "uniform(1, 2",
        "uniform(1, 2, 3)", "normal(1, 2)", "exponential()", "lognormal(1, x)", "pareto(1, 1)"}) {
    const auto parsed = ParseDistribution(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find("lognormal(MEDIAN, SIGMA)"), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace tarn
