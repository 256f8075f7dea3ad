// Losses and their gradients with respect to the logits. Computed in double with exponentials of our own
// (relative error below 1e-14): the same bits on every x86-64. No logit overflows: a finite logit gives a finite loss;
// a NaN gives NaN. Any thread.
//
//   double sum = LogisticLoss(n, logits, labels, 1.0f / n, grad);          // grad of the mean loss
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// Returns the sum over i of -log p(label), with p(1) = sigmoid(logit) and labels 0 or 1 (anything between is a
// soft label). grad[i] = scale * (sigmoid(logit) - label); `grad` may be null. The sum has the shape of
// kernels/elementwise.h, but for the parts log(1 + exp(-|logit|)): those of up to 64 rows of a partial sum are the
// logarithm of one product, an error of at most 2^-51 a row.
double LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad);

struct SoftmaxResult {
  double loss = 0;          // sum of -log p(label) over the rows, natural logarithm
  std::size_t correct = 0;  // rows whose largest logit (the first of equal ones) is the label's
};

// Softmax cross-entropy of n x classes logits; labels[i] < classes. grad (n x classes) = scale * (p - onehot);
// it may be null. classes >= 1. Rows are summed in their order.
SoftmaxResult SoftmaxCrossEntropy(std::size_t n, std::uint32_t classes, const float* logits,
                                  const std::uint32_t* labels, float scale, float* grad);

// The same row by row: losses[i], and correct[i] is 1 or 0. Here labels are whole numbers held as floats.
void SoftmaxCrossEntropyByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct);

// On a GPU. `loss` and `correct` are kLossParts numbers each of device memory: the first becomes the sum, the others
// are working memory. What belongs to one row or element has the CPU's bits; the rows' losses are added in another
// order, which depends on n alone.
inline constexpr std::size_t kLossParts = 512;
void LogisticLoss(Stream& stream, std::size_t n, const float* logits, const float* labels, float scale, float* grad,
                  double* loss);
void SoftmaxCrossEntropy(Stream& stream, std::size_t n, std::uint32_t classes, const float* logits,
                         const std::uint32_t* labels, float scale, float* grad, double* loss, std::size_t* correct);
// LogisticGradient: the gradient alone, for who makes the loss of logits that he fetches anyway.
void LogisticGradient(Stream& stream, std::size_t n, const float* logits, const float* labels, float scale,
                      float* grad);
void SoftmaxCrossEntropyByRow(Stream& stream, std::size_t n, std::uint32_t classes, const float* logits,
                              const float* labels, float scale, float* grad, double* losses, std::uint32_t* correct);

}  // namespace tarn::kernels
