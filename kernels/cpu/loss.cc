#include "kernels/loss.h"

#include "core/error.h"
#include "kernels/cpu/reduce.h"
#include "kernels/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// exp(-|x|), which never overflows, serves both signs of x.
HWY_INLINE double SigmoidOf(double x, double exp_minus_abs) {
  const double numerator = x >= 0.0 ? 1.0 : exp_minus_abs;
  return numerator / (1.0 + exp_minus_abs);
}

// The terms max(x, 0) - x label + log(1 + e) of a tile, e = exp(-|x|). Its logarithms are one for each partial sum: of
// a product of factors in [1, 2], few enough to fit a double.
template <bool kWithGradient>
double LogisticLossLoop(std::size_t n, const float* HWY_RESTRICT logits, const float* HWY_RESTRICT labels, float scale,
                        float* HWY_RESTRICT grad) {
  constexpr std::size_t kTile = 512;
  double linear[kTile], factors[kTile], sums[kPartialSums] = {};
  for (std::size_t begin = 0; begin < n; begin += kTile) {
    const std::size_t count = n - begin < kTile ? n - begin : kTile;
    for (std::size_t i = 0; i < count; ++i) {
      const double x = double(logits[begin + i]), label = double(labels[begin + i]);
      const double e = math::Exp(x < 0.0 ? x : -x);
      linear[i] = (x < 0.0 ? 0.0 : x) - x * label;
      factors[i] = 1.0 + e;
      if (kWithGradient) grad[begin + i] = float(double(scale) * (SigmoidOf(x, e) - label));
    }
    std::size_t padded = count;
    for (; padded % kPartialSums != 0; ++padded) {
      linear[padded] = 0.0;
      factors[padded] = 1.0;
    }
    double products[kPartialSums];
    for (double& product : products) product = 1.0;
    for (std::size_t i = 0; i < padded; i += kPartialSums)
      for (std::size_t j = 0; j < kPartialSums; ++j) {
        sums[j] += linear[i + j];
        products[j] *= factors[i + j];
      }
    for (std::size_t j = 0; j < kPartialSums; ++j) sums[j] += math::Log(products[j]);
  }
  return SumOfPartialSums(sums);
}

double LogisticLossAlone(std::size_t n, const float* logits, const float* labels) {
  return LogisticLossLoop<false>(n, logits, labels, 0.0f, nullptr);
}

double LogisticLossAndGradient(std::size_t n, const float* logits, const float* labels, float scale, float* grad) {
  return LogisticLossLoop<true>(n, logits, labels, scale, grad);
}

double SumOfExp(std::size_t n, const float* logits, double shift) {
  return SumOfTerms(n, [=](std::size_t i) HWY_ATTR { return math::Exp(double(logits[i]) - shift); });
}

void SoftmaxGradient(std::size_t n, const float* HWY_RESTRICT logits, double shift, double factor,
                     float* HWY_RESTRICT grad) {
  for (std::size_t i = 0; i < n; ++i) grad[i] = float(math::Exp(double(logits[i]) - shift) * factor);
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(LogisticLossAlone);
HWY_EXPORT(LogisticLossAndGradient);
HWY_EXPORT(SumOfExp);
HWY_EXPORT(SoftmaxGradient);

double LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad) {
  if (grad == nullptr) return HWY_DYNAMIC_DISPATCH(LogisticLossAlone)(n, logits, labels);
  return HWY_DYNAMIC_DISPATCH(LogisticLossAndGradient)(n, logits, labels, scale, grad);
}

namespace {

std::uint32_t FirstLargest(std::uint32_t classes, const float* logits) {
  std::uint32_t best = 0;
  for (std::uint32_t c = 1; c < classes; ++c)
    if (logits[c] > logits[best]) best = c;
  return best;
}

}  // namespace

SoftmaxResult SoftmaxCrossEntropy(std::size_t n, std::uint32_t classes, const float* logits,
                                  const std::uint32_t* labels, float scale, float* grad) {
  SoftmaxResult result;
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = logits + i * classes;
    const std::uint32_t label = labels[i];
    TARN_CHECK(label < classes, "readers know the classes");
    const std::uint32_t best = FirstLargest(classes, row);
    const double shift = double(row[best]);
    const double sum = HWY_DYNAMIC_DISPATCH(SumOfExp)(classes, row, shift);
    result.loss += math::Log(sum) - (double(row[label]) - shift);
    result.correct += best == label;
    if (grad == nullptr) continue;
    float* grad_row = grad + i * classes;
    const double factor = double(scale) / sum;
    HWY_DYNAMIC_DISPATCH(SoftmaxGradient)(classes, row, shift, factor, grad_row);
    grad_row[label] = float(double(scale) * (math::Exp(double(row[label]) - shift) / sum - 1.0));
  }
  return result;
}

void SoftmaxCrossEntropyByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto label = static_cast<std::uint32_t>(labels[i]);
    const SoftmaxResult row = SoftmaxCrossEntropy(1, classes, logits + i * classes, &label, scale,
                                                  grad == nullptr ? nullptr : grad + i * classes);
    losses[i] = row.loss;
    correct[i] = static_cast<std::uint32_t>(row.correct);
  }
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
