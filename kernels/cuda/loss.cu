// Losses and their gradients, with the results of kernels/loss.h.
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/loss.h"
#include "kernels/math.h"

namespace tarn::kernels::cuda {
namespace {

// exp(-|x|), which never overflows, serves both signs of x.
__device__ inline double ExpMinusAbs(double x) { return math::Exp(x < 0.0 ? x : -x); }

__device__ inline double SigmoidOf(double x, double exp_minus_abs) {
  return (x >= 0.0 ? 1.0 : exp_minus_abs) / (1.0 + exp_minus_abs);
}

// The index of the first of the largest logits, computed on a tile. Every lane starts from element 0, as the CPU does,
// so that a NaN there stays the largest and other NaNs never are.
__device__ inline std::uint32_t FirstLargest(std::uint32_t classes, const float* logits, unsigned lane) {
  float largest = logits[0];
  std::uint32_t best = 0;
  for (std::uint32_t c = lane; c < classes; c += kTile)
    if (logits[c] > largest) {
      largest = logits[c];
      best = c;
    }
  for (int distance = kTile / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(TileMask(), largest, distance);
    const std::uint32_t other_best = __shfl_xor_sync(TileMask(), best, distance);
    if (other > largest || (other == largest && other_best < best)) {
      largest = other;
      best = other_best;
    }
  }
  return best;
}

struct RowLoss {
  double loss;
  bool correct;  // the largest logit is the label's
};
// Computes the loss of a row of logits on a tile; all lanes get it. grad: the row's gradient, or null.
__device__ inline RowLoss SoftmaxOfRow(std::uint32_t classes, const float* row, std::uint32_t label, float scale,
                                       float* grad, unsigned lane) {
  const std::uint32_t best = FirstLargest(classes, row, lane);
  const double shift = double(row[best]);
  double partial = 0;
  for (std::uint32_t c = lane; c < classes; c += kTile) partial += math::Exp(double(row[c]) - shift);
  const double sum = SumOfTile(partial), factor = double(scale) / sum;
  for (std::uint32_t c = lane; grad != nullptr && c < classes; c += kTile) {
    const double e = math::Exp(double(row[c]) - shift);
    grad[c] = c == label ? float(double(scale) * (e / sum - 1.0)) : float(e * factor);
  }
  return {math::Log(sum) - (double(row[label]) - shift), best == label};
}

}  // namespace

cudaError_t LogisticGradient(cudaStream_t stream, std::size_t n, const float* logits, const float* labels, float scale,
                             float* grad) {
  return ForEach(stream, n, [=] __device__(std::size_t i) {
    const double x = double(logits[i]);
    grad[i] = float(double(scale) * (SigmoidOf(x, ExpMinusAbs(x)) - double(labels[i])));
  });
}

cudaError_t SoftmaxCrossEntropyByRow(cudaStream_t stream, std::size_t n, std::uint32_t classes, const float* logits,
                                     const float* labels, float scale, float* grad, double* losses,
                                     std::uint32_t* correct) {
  return ForEachTile(stream, n, [=] __device__(std::size_t i, unsigned lane) {
    float* grad_row = grad == nullptr ? nullptr : grad + i * classes;
    const auto label = static_cast<std::uint32_t>(labels[i]);
    const RowLoss row = SoftmaxOfRow(classes, logits + i * classes, label, scale, grad_row, lane);
    if (lane != 0) return;
    losses[i] = row.loss;
    correct[i] = row.correct;
  });
}

}  // namespace tarn::kernels::cuda
