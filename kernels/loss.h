// Losses and their gradients with respect to the logits. Computed in double with exponentials of our own
// (relative error below 1e-14), summed in input order: the same bits on every x86-64. No logit overflows: a finite
// logit gives a finite loss; a NaN gives NaN. Any thread.
//
//   double sum = LogisticLoss(n, logits, labels, 1.0f / n, grad);          // grad of the mean loss
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// out[i] = 1 / (1 + exp(-logits[i])). In place is allowed.
void Sigmoid(std::size_t n, const float* logits, float* out);

// Returns the sum over i of -log p(label), with p(1) = sigmoid(logit) and labels 0 or 1 (anything between is a
// soft label). grad[i] = scale * (sigmoid(logit) - label); `grad` may be null.
double LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad);

// The gradient alone.
void LogisticGradient(std::size_t n, const float* logits, const float* labels, float scale, float* grad);

struct SoftmaxResult {
  double loss = 0;          // sum of -log p(label) over the rows, natural logarithm
  std::size_t correct = 0;  // rows whose largest logit (the first of equal ones) is the label's
};

// Softmax cross-entropy of n x classes logits; labels[i] < classes. grad (n x classes) = scale * (p - onehot);
// it may be null. classes >= 1.
SoftmaxResult SoftmaxCrossEntropy(std::size_t n, std::uint32_t classes, const float* logits,
                                  const std::uint32_t* labels, float scale, float* grad);

// The same row by row: losses[i], and correct[i] is 1 or 0. Here labels are whole numbers held as floats.
void SoftmaxCrossEntropyByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct);

// On a GPU. `loss` and `correct` are kLossParts numbers each of device memory: the first becomes the sum, the others
// are working memory. What belongs to one row or element has the CPU's bits; the rows' losses are added in another
// order, which depends on n alone.
inline constexpr std::size_t kLossParts = 512;
void Sigmoid(Stream& stream, std::size_t n, const float* logits, float* out);
void LogisticLoss(Stream& stream, std::size_t n, const float* logits, const float* labels, float scale, float* grad,
                  double* loss);
void SoftmaxCrossEntropy(Stream& stream, std::size_t n, std::uint32_t classes, const float* logits,
                         const std::uint32_t* labels, float scale, float* grad, double* loss, std::size_t* correct);
void LogisticGradient(Stream& stream, std::size_t n, const float* logits, const float* labels, float scale,
                      float* grad);
void SoftmaxCrossEntropyByRow(Stream& stream, std::size_t n, std::uint32_t classes, const float* logits,
                              const float* labels, float scale, float* grad, double* losses, std::uint32_t* correct);

}  // namespace tarn::kernels
