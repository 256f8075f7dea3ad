#include "kernels/fm.h"

#include "core/error.h"
#include "core/limits.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fm.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// The row and the weight of each occurrence of a batch.
struct Occurrences {
  const std::uint32_t* inverse;
  const float* weights;
  std::size_t Row(std::size_t o) const { return inverse == nullptr ? o : inverse[o]; }
  float Weight(std::size_t o) const { return weights == nullptr ? 1.0f : weights[o]; }
};

// Adds the vector x v to the sum, and its product with the sum so far to `pairs`. The pairs are summed directly,
// because the lemma's difference of squares would cancel digits.
template <typename Width>
HWY_INLINE void AddVector(Width dim, float x, const float* HWY_RESTRICT v, float* HWY_RESTRICT sum,
                          float* HWY_RESTRICT pairs) {
  for (std::uint32_t j = 0; j < dim; ++j) {
    const float xv = x * v[j];
    pairs[j] += xv * sum[j];
    sum[j] += xv;
  }
}

template <typename Width>
HWY_INLINE void AddGradient(Width dim, float x, float grad, const float* HWY_RESTRICT v, const float* HWY_RESTRICT sum,
                            float* HWY_RESTRICT out) {
  for (std::uint32_t j = 0; j < dim; ++j) out[j] += grad * (sum[j] - x * v[j]);
}

void Forward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
             const std::uint32_t* offsets, const float* weights, float* out, float* sums) {
  const Occurrences at{inverse, weights};
  WithWidth(dim, [=](auto width) HWY_ATTR {
    float pairs[limits::kRowDimMax];
    const std::size_t end = samples == 0 ? 0 : offsets[samples];
    for (std::size_t s = 0; s < samples; ++s) {
      float* sum = sums + s * width;
      for (std::uint32_t j = 0; j < width; ++j) sum[j] = pairs[j] = 0.0f;
      for (std::size_t o = offsets[s]; o < offsets[s + 1]; ++o) {
        if (o + kRowsAhead < end) PrefetchRow(rows + at.Row(o + kRowsAhead) * width, width);
        AddVector(width, at.Weight(o), rows + at.Row(o) * width, sum, pairs);
      }
      const float* terms = pairs;
      out[s] = float(SumOfTerms(width, [terms](std::size_t j) HWY_ATTR { return double(terms[j]); }));
    }
  });
}

void Backward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
              const std::uint32_t* offsets, const float* weights, const float* grad_out, const float* sums,
              float* grad_rows) {
  const Occurrences at{inverse, weights};
  WithWidth(dim, [=](auto width) HWY_ATTR {
    const std::size_t end = samples == 0 ? 0 : offsets[samples];
    for (std::size_t s = 0; s < samples; ++s)
      for (std::size_t o = offsets[s]; o < offsets[s + 1]; ++o) {
        if (o + kRowsAhead < end) {
          PrefetchRow(rows + at.Row(o + kRowsAhead) * width, width);
          PrefetchRow(grad_rows + at.Row(o + kRowsAhead) * width, width);
        }
        const float x = at.Weight(o);
        AddGradient(width, x, grad_out[s] * x, rows + at.Row(o) * width, sums + s * width,
                    grad_rows + at.Row(o) * width);
      }
  });
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

void FmForward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
               const std::uint32_t* offsets, const float* weights, float* out, float* sums) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  HWY_DYNAMIC_DISPATCH(Forward)(samples, dim, rows, inverse, offsets, weights, out, sums);
}

void FmBackward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
                const std::uint32_t* offsets, const float* weights, const float* grad_out, const float* sums,
                float* grad_rows) {
  HWY_DYNAMIC_DISPATCH(Backward)(samples, dim, rows, inverse, offsets, weights, grad_out, sums, grad_rows);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
