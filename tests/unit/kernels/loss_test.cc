// Shows that losses and their gradients agree with libm in long double, at the extremes too, that gradients are those
// of finite differences, and that the bits are the same on every instruction set.
#include "kernels/loss.h"

#include <algorithm>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

double Logistic64(const std::vector<float>& logits, const std::vector<float>& labels) {
  long double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const long double x = logits[i], y = labels[i];
    sum += std::max(x, 0.0L) - x * y + std::log1p(std::exp(-std::abs(x)));
  }
  return double(sum);
}

TEST(LossTest, LogisticLossAndGradient) {
  SplitMix random(2);
  for (const std::size_t n : {0, 1, 13, 1000}) {
    std::vector<float> logits = RandomFloats(n, random, -20, 20), labels(n);
    for (float& y : labels) y = random.Chance(0.3) ? 1.0f : 0.0f;
    std::vector<float> grad = Poisoned(n);
    const double loss = LogisticLoss(n, logits.data(), labels.data(), 0.25f, grad.data());
    EXPECT_NEAR(loss, Logistic64(logits, labels), 1e-12 * (1 + loss));
    EXPECT_EQ(loss, LogisticLoss(n, logits.data(), labels.data(), 0.25f, nullptr));
    for (std::size_t i = 0; i < std::min<std::size_t>(n, 50); ++i) {
      const float kept = logits[i];
      logits[i] = kept + 0x1p-10f;
      const double up = Logistic64(logits, labels), high = double(logits[i]);
      logits[i] = kept - 0x1p-10f;
      const double down = Logistic64(logits, labels), low = double(logits[i]);
      logits[i] = kept;
      EXPECT_NEAR(0.25 * (up - down) / (high - low), grad[i], 1e-6);
    }
  }
}

TEST(LossTest, LogisticGradientIsRoundedFromAnAccurateOne) {
  SplitMix random(7);
  const std::vector<float> logits = RandomFloats(1000, random, -30, 30), labels(1000, 0.0f);
  std::vector<float> grad = Poisoned(1000);
  LogisticLoss(1000, logits.data(), labels.data(), 1.0f, grad.data());
  for (std::size_t i = 0; i < grad.size(); ++i)
    ASSERT_FLOAT_EQ(grad[i], float(1.0L / (1.0L + std::exp(-static_cast<long double>(logits[i])))));
}

// So many rows that the product of their factors would exceed a double's range of 2^1024.
TEST(LossTest, LogisticLossOfManyRows) {
  for (const std::size_t n : {511, 512, 513, 4096 * 8, 70'001}) {
    const std::vector<float> logits(n, 0.0f), labels(n, 1.0f);
    EXPECT_NEAR(LogisticLoss(n, logits.data(), labels.data(), 1.0f, nullptr), double(n) * std::log(2.0),
                1e-12 * double(n));
  }
  SplitMix random(8);
  const std::vector<float> logits = RandomFloats(70'001, random, -3, 3);
  std::vector<float> labels(logits.size());
  for (float& y : labels) y = float(random.Unit());  // soft ones
  const double expected = Logistic64(logits, labels);
  EXPECT_NEAR(LogisticLoss(logits.size(), logits.data(), labels.data(), 1.0f, nullptr), expected, 1e-12 * expected);
}

TEST(LossTest, LogisticLossAtTheExtremes) {
  const std::vector<float> logits = {1000.0f, -1000.0f, 1000.0f, -1000.0f}, labels = {1, 0, 0, 1};
  std::vector<float> grad = Poisoned(4);
  EXPECT_DOUBLE_EQ(LogisticLoss(4, logits.data(), labels.data(), 1.0f, grad.data()), 2000.0);
  EXPECT_EQ(grad, (std::vector<float>{0, 0, 1, -1}));
  const std::vector<float> far = {1e30f, -1e30f, HUGE_VALF, -HUGE_VALF}, near = {1, 0, 1, 0};
  ForEachTarget([&](const char* name) {
    for (std::size_t i = 0; i < far.size(); ++i) {
      float g = kPoison;
      const double loss = LogisticLoss(1, &far[i], &near[i], 1.0f, &g);
      EXPECT_EQ(g, 0.0f) << name << " " << far[i];
      if (i < 2) {
        EXPECT_EQ(loss, 0.0) << name << " " << far[i];
      }
    }
  });
}

// One NaN among many rows, wherever it is.
TEST(LossTest, LogisticLossOfNaNIsNaN) {
  ForEachTarget([&](const char* name) {
    for (const std::size_t at : {0, 7, 300, 511, 600}) {
      std::vector<float> logits(601, 1.0f), labels(601, 1.0f), grad = Poisoned(601);
      logits[at] = kPoison;
      EXPECT_TRUE(std::isnan(LogisticLoss(601, logits.data(), labels.data(), 1.0f, grad.data()))) << name << " " << at;
      for (std::size_t i = 0; i < grad.size(); ++i) EXPECT_EQ(std::isnan(grad[i]), i == at) << name;
    }
  });
}

double Softmax64(std::size_t n, std::size_t classes, const std::vector<float>& logits,
                 const std::vector<std::uint32_t>& labels) {
  long double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = logits.data() + i * classes;
    const long double largest = *std::max_element(row, row + classes);
    long double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(static_cast<long double>(row[c]) - largest);
    sum += std::log(total) + largest - static_cast<long double>(row[labels[i]]);
  }
  return double(sum);
}

struct SoftmaxResult {
  double loss = 0;
  std::size_t correct = 0;
};

// The sums over the rows, in their order.
SoftmaxResult SoftmaxCrossEntropy(std::size_t n, std::uint32_t classes, const float* logits,
                                  const std::uint32_t* labels, float scale, float* grad) {
  const std::vector<float> whole(labels, labels + n);
  std::vector<double> losses(n, NAN);
  std::vector<std::uint32_t> correct(n, 9);
  SoftmaxCrossEntropyByRow(n, classes, logits, whole.data(), scale, grad, losses.data(), correct.data());
  SoftmaxResult result;
  for (const double loss : losses) result.loss += loss;
  for (const std::uint32_t one : correct) result.correct += one;
  return result;
}

TEST(LossTest, SoftmaxLossGradientAndAccuracy) {
  SplitMix random(3);
  for (const std::uint32_t classes : {1u, 2u, 10u, 37u})
    for (const std::size_t n : {0, 1, 20}) {
      std::vector<float> logits = RandomFloats(n * classes, random, -5, 5);
      const std::vector<std::uint32_t> labels = RandomIndices(n, classes, random);
      std::vector<float> grad = Poisoned(n * classes);
      const auto [loss, correct] = SoftmaxCrossEntropy(n, classes, logits.data(), labels.data(), 0.5f, grad.data());
      EXPECT_NEAR(loss, Softmax64(n, classes, logits, labels), 1e-12 * (1 + loss));
      std::size_t expected_correct = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const auto row = logits.begin() + std::ptrdiff_t(i * classes);
        expected_correct += std::size_t(std::max_element(row, row + classes) - row) == labels[i];
      }
      EXPECT_EQ(correct, expected_correct);
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const float kept = logits[i];
        logits[i] = kept + 0x1p-10f;
        const double up = Softmax64(n, classes, logits, labels), high = double(logits[i]);
        logits[i] = kept - 0x1p-10f;
        const double down = Softmax64(n, classes, logits, labels), low = double(logits[i]);
        logits[i] = kept;
        EXPECT_NEAR(0.5 * (up - down) / (high - low), grad[i], 1e-6);
      }
    }
}

// Few classes and more than one vector step, with enough rows for several tiles.
TEST(LossTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  SplitMix random(9);
  for (const std::uint32_t classes : {1u, 2u, 7u, 8u, 10u, 33u, 500u, 1023u, 1024u, 1025u, 3001u})
    for (const std::size_t n : {1, 2, 127, 128, 129, 300}) {
      if (n * classes > 100'000) continue;
      const std::vector<float> logits = RandomFloats(n * classes, random, -9, 9);
      const std::vector<std::uint32_t> labels = RandomIndices(n, classes, random);
      std::vector<float> grad = Poisoned(logits.size()), alone = Poisoned(logits.size());
      const SoftmaxResult all = SoftmaxCrossEntropy(n, classes, logits.data(), labels.data(), 0.5f, grad.data());
      SoftmaxResult sum;
      for (std::size_t i = 0; i < n; ++i) {
        const SoftmaxResult row =
            SoftmaxCrossEntropy(1, classes, logits.data() + i * classes, &labels[i], 0.5f, alone.data() + i * classes);
        sum.loss += row.loss;
        sum.correct += row.correct;
      }
      EXPECT_TRUE(SameBits(grad, alone)) << n << " x " << classes;
      EXPECT_EQ(all.loss, sum.loss) << n << " x " << classes;
      EXPECT_EQ(all.correct, sum.correct) << n << " x " << classes;
      EXPECT_NEAR(all.loss, Softmax64(n, classes, logits, labels), 1e-12 * (1 + all.loss)) << n << " x " << classes;
      EXPECT_EQ(all.loss, SoftmaxCrossEntropy(n, classes, logits.data(), labels.data(), 0.5f, nullptr).loss);
    }
}

// A faster implementation must not change the result of a job.
TEST(LossTest, SoftmaxBitsAreStable) {
  ForEachTarget([](const char* name) {
    SplitMix random(10);
    std::uint64_t state = 0;
    for (const std::uint32_t classes : {1u, 3u, 10u, 37u, 1024u, 2500u}) {
      const std::size_t n = 10'000 / classes;
      const std::vector<float> logits = RandomFloats(n * classes, random, -9, 9);
      std::vector<float> labels(n), grad = Poisoned(logits.size());
      for (std::size_t i = 0; i < n; ++i) {  // the best, whose loss is the logarithm of the sum
        const auto row = logits.begin() + std::ptrdiff_t(i * classes);
        labels[i] = float(std::max_element(row, row + classes) - row);
      }
      std::vector<double> losses(n, NAN);
      std::vector<std::uint32_t> correct(n, 9);
      SoftmaxCrossEntropyByRow(n, classes, logits.data(), labels.data(), 0.1f, grad.data(), losses.data(),
                               correct.data());
      for (const double loss : losses) state = HashCombine(state, std::bit_cast<std::uint64_t>(loss));
      for (const float g : grad) state = HashCombine(state, std::bit_cast<std::uint32_t>(g));
    }
    EXPECT_EQ(state, 928310123426876461ULL) << name;
  });
}

// Of two equal values the first counts, at any positions. A NaN at the first position is the largest, elsewhere never.
TEST(LossTest, TheBestOfManyClasses) {
  ForEachTarget([](const char* name) {
    for (const std::uint32_t classes : {2u, 10u, 31u, 32u, 50u, 100u})
      for (std::uint32_t first = 0; first < classes; ++first)
        for (const std::uint32_t second : {first + 1, first + 15, first + 16, first + 17, classes - 1}) {
          if (second <= first || second >= classes) continue;
          std::vector<float> logits(classes, -1.0f);
          logits[first] = logits[second] = 2.0f;
          const auto is_best = [&](std::uint32_t label) {
            return SoftmaxCrossEntropy(1, classes, logits.data(), &label, 1.0f, nullptr).correct == 1;
          };
          EXPECT_TRUE(is_best(first)) << name << " " << classes << ": " << first << ", " << second;
          EXPECT_FALSE(is_best(second)) << name << " " << classes << ": " << first << ", " << second;
          logits[second] = kPoison;
          EXPECT_TRUE(is_best(first)) << name << " " << classes << ": " << first << ", NaN at " << second;
          if (first == 0) continue;
          logits[0] = kPoison;
          EXPECT_TRUE(is_best(0)) << name << " " << classes << ": NaN in front";
        }
  });
}

TEST(LossTest, SoftmaxTiesAndExtremes) {
  const std::vector<float> logits = {2, 2, 2, 1e30f, -1e30f, 0};
  const std::vector<std::uint32_t> labels = {0, 1};
  std::vector<float> grad = Poisoned(6);
  const auto [loss, correct] = SoftmaxCrossEntropy(2, 3, logits.data(), labels.data(), 1.0f, grad.data());
  EXPECT_EQ(correct, 1u) << "of equal logits the first one counts";
  EXPECT_NEAR(loss, 2e30, 1e24);
  for (const float g : grad) EXPECT_TRUE(std::isfinite(g));
}

TEST(LossTest, ALabelOutOfRangeIsAnError) {
  const std::vector<float> logits = {1, 2, 3};
  const std::uint32_t label = 3;
  EXPECT_DEATH(SoftmaxCrossEntropy(1, 3, logits.data(), &label, 1.0f, nullptr),
               "labels are below the number of classes");
}

// The NaN is at the label, at the best class, elsewhere, or first; one row at a time, so that rows do not hide each
// other.
TEST(LossTest, SoftmaxOfNaNIsNaN) {
  const std::vector<float> labels = {0, 1, 2};
  ForEachTarget([&](const char* name) {
    for (const float nan : {kPoison, -kPoison})
      for (const std::size_t at : {0, 1, 2}) {
        std::vector<float> logits, grad = Poisoned(9);
        for (int row = 0; row < 3; ++row) logits.insert(logits.end(), {1, 3, 2});
        for (int row = 0; row < 3; ++row) logits[row * 3 + at] = nan;
        std::vector<double> losses(3);
        std::vector<std::uint32_t> correct(3);
        SoftmaxCrossEntropyByRow(3, 3, logits.data(), labels.data(), 1.0f, grad.data(), losses.data(), correct.data());
        for (int row = 0; row < 3; ++row) EXPECT_TRUE(std::isnan(losses[row])) << name << " " << row << " " << at;
        for (const float g : grad) EXPECT_TRUE(std::isnan(g)) << name;
      }
  });
}

TEST(LossTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(4);
  std::vector<float> logits = RandomFloats(37 * 27, random, -10, 10);
  for (std::size_t i = 0; i < logits.size(); i += 11) logits[i] = float(-86 - 18 * random.Unit());  // tiny gradients
  std::vector<float> labels(logits.size());
  for (float& y : labels) y = float(random.Below(2));
  const std::vector<std::uint32_t> classes = RandomIndices(27, 37, random);
  const auto compute = [&](std::size_t shift) {
    Shifted in(logits, shift);
    std::vector<float> out, grad = Poisoned(logits.size()), soft = Poisoned(logits.size());
    const double logistic = LogisticLoss(logits.size(), in.data(), labels.data(), 0.1f, grad.data());
    const double softmax = SoftmaxCrossEntropy(27, 37, in.data(), classes.data(), 0.1f, soft.data()).loss;
    out.insert(out.end(), grad.begin(), grad.end());
    out.insert(out.end(), soft.begin(), soft.end());
    for (const double loss : {logistic, softmax}) {  // both halves of the bits
      const auto bits = std::bit_cast<std::uint64_t>(loss);
      out.push_back(std::bit_cast<float>(std::uint32_t(bits)));
      out.push_back(std::bit_cast<float>(std::uint32_t(bits >> 32)));
    }
    return out;
  };
  for (const std::size_t shift : {1, 7}) EXPECT_TRUE(SameBits(compute(0), compute(shift)));
  ExpectSameBitsOnEveryTarget([&] { return compute(3); });
}

}  // namespace
}  // namespace tarn::kernels
