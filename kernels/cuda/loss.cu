// Losses: the numbers of kernels/loss.h element by element. Their sum has the shape of a grid that is always the same.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/loss.h"
#include "kernels/math.h"

namespace tarn::kernels::cuda {
namespace {

constexpr unsigned kBlocks = kLossParts;  // of a loss's kernel, whatever n is

// exp(-|x|), which never overflows, serves both signs of x.
__device__ inline double ExpMinusAbs(double x) { return math::Exp(x < 0.0 ? x : -x); }

__device__ inline double SigmoidOf(double x, double exp_minus_abs) {
  return (x >= 0.0 ? 1.0 : exp_minus_abs) / (1.0 + exp_minus_abs);
}

template <typename T>
__global__ void SumPartsKernel(T* parts) {
  T sum = 0;
  for (std::size_t p = threadIdx.x; p < kLossParts; p += kBlock) sum += parts[p];
  const T total = SumOfBlock(sum);
  if (threadIdx.x == 0) parts[0] = total;
}

__global__ void LogisticKernel(std::size_t n, const float* logits, const float* labels, float scale, float* grad,
                               double* loss) {
  double sum = 0;
  for (std::size_t i = FirstThread(); i < n; i += Threads()) {
    const double x = double(logits[i]), label = double(labels[i]), e = ExpMinusAbs(x);
    const double positive = x < 0.0 ? 0.0 : x;
    sum += (positive - x * label) + math::Log1p(e);
    if (grad != nullptr) grad[i] = float(double(scale) * (SigmoidOf(x, e) - label));
  }
  const double total = SumOfBlock(sum);
  if (threadIdx.x == 0) loss[blockIdx.x] = total;
}

// By a tile: every lane starts from element 0, as the CPU does, so that a NaN there stays and others never win.
__device__ inline std::uint32_t FirstLargest(std::uint32_t classes, const float* logits, unsigned lane) {
  float largest = logits[0];
  std::uint32_t best = 0;
  for (std::uint32_t c = lane; c < classes; c += kTile)
    if (logits[c] > largest) {
      largest = logits[c];
      best = c;
    }
  for (int to = kTile / 2; to > 0; to /= 2) {
    const float other = __shfl_xor_sync(TileMask(), largest, to);
    const std::uint32_t its = __shfl_xor_sync(TileMask(), best, to);
    if (other > largest || (other == largest && its < best)) {
      largest = other;
      best = its;
    }
  }
  return best;
}

// What a row of logits comes to, by a tile; all of it get it. grad: of the row, or null.
struct RowLoss {
  double loss;
  bool correct;
};
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

__global__ void SoftmaxKernel(std::size_t n, std::uint32_t classes, const float* logits, const std::uint32_t* labels,
                              float scale, float* grad, double* losses, std::size_t* corrects) {
  const unsigned lane = TileLane();
  double loss = 0;
  std::size_t correct = 0;
  for (std::size_t i = FirstTile(); i < n; i += Tiles()) {
    float* grad_row = grad == nullptr ? nullptr : grad + i * classes;
    const RowLoss row = SoftmaxOfRow(classes, logits + i * classes, labels[i], scale, grad_row, lane);
    if (lane != 0) continue;
    loss += row.loss;
    correct += row.correct;
  }
  const double total = SumOfBlock(loss);
  const std::size_t total_correct = SumOfBlock(correct);
  if (threadIdx.x != 0) return;
  losses[blockIdx.x] = total;
  corrects[blockIdx.x] = total_correct;
}

template <typename T>
cudaError_t SumParts(cudaStream_t stream, T* parts) {
  SumPartsKernel<<<1, kBlock, 0, stream>>>(parts);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LogisticLoss(cudaStream_t stream, std::size_t n, const float* logits, const float* labels, float scale,
                         float* grad, double* loss) {
  LogisticKernel<<<kBlocks, kBlock, 0, stream>>>(n, logits, labels, scale, grad, loss);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  return SumParts(stream, loss);
}

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

cudaError_t SoftmaxCrossEntropy(cudaStream_t stream, std::size_t n, std::uint32_t classes, const float* logits,
                                const std::uint32_t* labels, float scale, float* grad, double* loss,
                                std::size_t* correct) {
  SoftmaxKernel<<<kBlocks, kBlock, 0, stream>>>(n, classes, logits, labels, scale, grad, loss, correct);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  if (const cudaError_t error = SumParts(stream, loss); error != cudaSuccess) return error;
  return SumParts(stream, correct);
}

}  // namespace tarn::kernels::cuda
