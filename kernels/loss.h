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

// Softmax cross-entropy of n x classes logits, row by row. labels[i]: a whole number below `classes`, which is at least
// 1. losses[i] = -log p(label), natural logarithm; correct[i] is 1 if the row's largest logit (the first of equal ones)
// is the label's, else 0. grad (n x classes) = scale * (p - onehot); it may be null.
void SoftmaxCrossEntropyByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels,
                              float scale, float* grad, double* losses, std::uint32_t* correct);

// On a GPU: the bits of the CPU. LogisticGradient is the gradient alone: the host makes the loss of the logits, which
// it fetches anyway.
void LogisticGradient(Stream& stream, std::size_t n, const float* logits, const float* labels, float scale,
                      float* grad);
void SoftmaxCrossEntropyByRow(Stream& stream, std::size_t n, std::uint32_t classes, const float* logits,
                              const float* labels, float scale, float* grad, double* losses, std::uint32_t* correct);

}  // namespace tarn::kernels
