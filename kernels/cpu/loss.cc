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

void SigmoidLoop(std::size_t n, const float* logits, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const double x = double(logits[i]);
    out[i] = float(SigmoidOf(x, math::Exp(x < 0.0 ? x : -x)));
  }
}

void LogisticGradientLoop(std::size_t n, const float* HWY_RESTRICT logits, const float* HWY_RESTRICT labels,
                          float scale, float* HWY_RESTRICT grad) {
  for (std::size_t i = 0; i < n; ++i) {
    const double x = double(logits[i]);
    const double p = SigmoidOf(x, math::Exp(x < 0.0 ? x : -x));
    grad[i] = float(double(scale) * (p - double(labels[i])));
  }
}

// The terms of a tile are computed side by side, then summed in their order.
double LogisticSum(std::size_t n, const float* HWY_RESTRICT logits, const float* HWY_RESTRICT labels) {
  constexpr std::size_t kTile = 256;
  double terms[kTile];
  double sum = 0;
  for (std::size_t begin = 0; begin < n; begin += kTile) {
    const std::size_t count = n - begin < kTile ? n - begin : kTile;
    for (std::size_t i = 0; i < count; ++i) {
      const double x = double(logits[begin + i]);
      const double positive = x < 0.0 ? 0.0 : x;
      terms[i] = (positive - x * double(labels[begin + i])) + math::Log1p(math::Exp(x < 0.0 ? x : -x));
    }
    for (std::size_t i = 0; i < count; ++i) sum += terms[i];
  }
  return sum;
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

HWY_EXPORT(SigmoidLoop);
HWY_EXPORT(LogisticGradientLoop);
HWY_EXPORT(LogisticSum);
HWY_EXPORT(SumOfExp);
HWY_EXPORT(SoftmaxGradient);

void Sigmoid(std::size_t n, const float* logits, float* out) { HWY_DYNAMIC_DISPATCH(SigmoidLoop)(n, logits, out); }

void LogisticGradient(std::size_t n, const float* logits, const float* labels, float scale, float* grad) {
  HWY_DYNAMIC_DISPATCH(LogisticGradientLoop)(n, logits, labels, scale, grad);
}

double LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad) {
  if (grad != nullptr) LogisticGradient(n, logits, labels, scale, grad);
  return HWY_DYNAMIC_DISPATCH(LogisticSum)(n, logits, labels);
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
