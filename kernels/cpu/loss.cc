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

// Sums max(x, 0) - x label + log(1 + e), where e = exp(-|x|), tile by tile. Each partial sum of a tile takes one
// logarithm: of the product of its up to 64 factors 1 + e in [1, 2], which fits a double.
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

// Softmax works on tiles of whole rows, stored in one array, so that rows of few classes share vectors. A row with more
// values than a tile holds is a separate tile, and its exponentials are recomputed where they are used.
constexpr std::size_t kTileValues = 1024;
constexpr std::size_t kTileRows = 128;
constexpr std::size_t kGroup = 8;  // values that Spread writes at a time

std::size_t RowsOfTile(std::uint32_t classes) {
  const std::size_t rows = kTileValues / classes;
  return rows < 1 ? 1 : rows < kTileRows ? rows : kTileRows;
}

// Index of the first of the largest values. A NaN at the start stays the largest; other NaNs never are.
HWY_INLINE std::uint32_t FirstLargest(std::uint32_t n, const float* x) {
  constexpr std::uint32_t kLanes = 16;
  float largest = x[0];
  std::uint32_t best = 0, i = 1;
  if (n >= 2 * kLanes) {
    float lanes[kLanes];
    std::uint32_t at[kLanes] = {};
    for (float& lane : lanes) lane = largest;
    for (i = 0; i + kLanes <= n; i += kLanes)
      for (std::uint32_t j = 0; j < kLanes; ++j) {
        const bool larger = x[i + j] > lanes[j];
        lanes[j] = larger ? x[i + j] : lanes[j];
        at[j] = larger ? i + j : at[j];
      }
    for (std::uint32_t j = 0; j < kLanes; ++j)
      if (lanes[j] > largest || (lanes[j] == largest && at[j] < best)) {
        largest = lanes[j];
        best = at[j];
      }
  }
  for (; i < n; ++i) {
    const float value = x[i];
    best = value > largest ? i : best;
    largest = value > largest ? value : largest;
  }
  return best;
}

// out[r * classes + c] = of_row[r], in whole groups: up to kGroup - 1 numbers may be written beyond the rows.
HWY_INLINE void Spread(std::size_t rows, std::uint32_t classes, const double* HWY_RESTRICT of_row,
                       double* HWY_RESTRICT out) {
  for (std::size_t r = 0; r < rows; ++r, out += classes)
    for (std::uint32_t c = 0; c < classes; c += kGroup)
      for (std::uint32_t j = 0; j < kGroup; ++j) out[c + j] = of_row[r];
}

double SumOfExp(std::size_t n, const float* logits, double shift) {
  return SumOfTerms(n, [=](std::size_t i) HWY_ATTR { return math::Exp(double(logits[i]) - shift); });
}

void SoftmaxGradient(std::size_t n, const float* HWY_RESTRICT logits, double shift, double factor,
                     float* HWY_RESTRICT grad) {
  for (std::size_t i = 0; i < n; ++i) grad[i] = float(math::Exp(double(logits[i]) - shift) * factor);
}

// A tile in progress.
struct TileOfRows {
  // Per row: the largest logit (the shift), the label's logit minus the shift, and the sum of e^(logit - shift).
  double shifts[kTileRows], of_label[kTileRows], sums[kTileRows];
  double e[kTileValues];  // e^(logit - shift) of each value, if the tile fits
  double spread[kTileValues + kGroup];
};

void FindLargest(std::size_t rows, std::uint32_t classes, const float* logits, const std::uint32_t* labels,
                 TileOfRows* tile, std::uint32_t* correct) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* row = logits + r * classes;
    TARN_CHECK(labels[r] < classes, "labels are below the number of classes");
    const std::uint32_t best = FirstLargest(classes, row);
    correct[r] = best == labels[r];
    tile->shifts[r] = double(row[best]);
    tile->of_label[r] = double(row[labels[r]]) - tile->shifts[r];
  }
}

void SumRows(std::size_t rows, std::uint32_t classes, const float* HWY_RESTRICT logits, TileOfRows* tile) {
  const std::size_t values = rows * classes;
  if (values > kTileValues) {
    tile->sums[0] = SumOfExp(classes, logits, tile->shifts[0]);
    return;
  }
  Spread(rows, classes, tile->shifts, tile->spread);
  for (std::size_t i = 0; i < values; ++i) tile->e[i] = math::Exp(double(logits[i]) - tile->spread[i]);
  for (std::size_t r = 0; r < rows; ++r) {
    const double* row = tile->e + r * classes;
    tile->sums[r] = SumOfTerms(classes, [=](std::size_t i) HWY_ATTR { return row[i]; });
  }
}

void GradientOfRows(std::size_t rows, std::uint32_t classes, const float* logits, const std::uint32_t* labels,
                    float scale, TileOfRows* tile, float* HWY_RESTRICT grad) {
  const std::size_t values = rows * classes;
  double factors[kTileRows];
  for (std::size_t r = 0; r < rows; ++r) factors[r] = double(scale) / tile->sums[r];
  if (values > kTileValues) {
    SoftmaxGradient(classes, logits, tile->shifts[0], factors[0], grad);
  } else {
    Spread(rows, classes, factors, tile->spread);
    for (std::size_t i = 0; i < values; ++i) grad[i] = float(tile->e[i] * tile->spread[i]);
  }
  double at_label[kTileRows];
  for (std::size_t r = 0; r < rows; ++r)
    at_label[r] = double(scale) * (math::Exp(tile->of_label[r]) / tile->sums[r] - 1.0);
  for (std::size_t r = 0; r < rows; ++r) grad[r * classes + labels[r]] = float(at_label[r]);
}

// Computes each row's loss, whether the label is the best class, and the gradient unless it is null.
void SoftmaxTile(std::size_t rows, std::uint32_t classes, const float* logits, const std::uint32_t* labels, float scale,
                 float* grad, double* HWY_RESTRICT losses, std::uint32_t* correct) {
  TileOfRows tile;
  FindLargest(rows, classes, logits, labels, &tile, correct);
  SumRows(rows, classes, logits, &tile);
  for (std::size_t r = 0; r < rows; ++r) losses[r] = math::Log(tile.sums[r]) - tile.of_label[r];
  if (grad != nullptr) GradientOfRows(rows, classes, logits, labels, scale, &tile, grad);
}

void SoftmaxByRowLoop(std::size_t n, std::uint32_t classes, const float* logits, const float* labels, float scale,
                      float* grad, double* losses, std::uint32_t* correct) {
  std::uint32_t whole[kTileRows];
  const std::size_t tile = RowsOfTile(classes);
  for (std::size_t begin = 0; begin < n; begin += tile) {
    const std::size_t rows = n - begin < tile ? n - begin : tile, at = begin * classes;
    for (std::size_t r = 0; r < rows; ++r) whole[r] = static_cast<std::uint32_t>(labels[begin + r]);
    SoftmaxTile(rows, classes, logits + at, whole, scale, grad == nullptr ? nullptr : grad + at, losses + begin,
                correct + begin);
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(LogisticLossAlone);
HWY_EXPORT(LogisticLossAndGradient);
HWY_EXPORT(SoftmaxByRowLoop);

double LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad) {
  if (grad == nullptr) return HWY_DYNAMIC_DISPATCH(LogisticLossAlone)(n, logits, labels);
  return HWY_DYNAMIC_DISPATCH(LogisticLossAndGradient)(n, logits, labels, scale, grad);
}

void SoftmaxCrossEntropyByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct) {
  HWY_DYNAMIC_DISPATCH(SoftmaxByRowLoop)(n, classes, logits, labels, scale, grad, losses, correct);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
