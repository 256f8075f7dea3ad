// Losses and their gradients with respect to the logits. Computed in double with this library's own exponential
// function (relative error below 1e-14): the same bits on every x86-64. No logit overflows: a finite logit gives a
// finite loss; a NaN gives NaN. Any thread.
//
//   double sum = LogisticLoss(n, logits, labels, 1.0f / n, grad);          // grad of the mean loss
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// Returns the sum over i of -log p(label), with p(1) = sigmoid(logit) and labels 0 or 1 (anything between is a soft
// label). grad[i] = scale * (sigmoid(logit) - label); `grad` may be null. The summation order is that of
// kernels/elementwise.h, except for the terms log(1 + exp(-|logit|)): for up to 64 rows of a partial sum they are
// computed as the logarithm of one product, with an error of at most 2^-51 per row.
double LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad);

// Softmax cross-entropy of n x classes logits, row by row. labels[i]: a whole number below `classes`, which is at least
// 1. losses[i] = -log p(label), natural logarithm; correct[i] is 1 if the row's largest logit (the first of equal ones)
// is the label's, else 0. grad (n x classes) = scale * (p - onehot); it may be null.
void SoftmaxCrossEntropyByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct);

// On a GPU, with the same bits as on the CPU. LogisticGradient computes only the gradient: the host computes the loss
// from the logits, which it copies back anyway.
void LogisticGradient(Stream& stream, std::size_t n, const float* logits, const float* labels, float scale,
                      float* grad);
void SoftmaxCrossEntropyByRow(Stream& stream, std::size_t n, std::uint32_t classes, const float* logits,
                              const float* labels, float scale, float* grad, double* losses, std::uint32_t* correct);

}  // namespace tarn::kernels
