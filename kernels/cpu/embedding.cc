#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/rowwise.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

template <typename Width>
HWY_INLINE void AddScaled(Width dim, float factor, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  for (std::uint32_t j = 0; j < dim; ++j) out[j] += factor * in[j];
}

void BagForward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
                const std::uint32_t* offsets, const float* weights, float* out) {
  WithWidth(dim, [=](auto width) HWY_ATTR {
    const std::size_t end = samples == 0 ? 0 : offsets[samples];
    for (std::size_t s = 0; s < samples; ++s) {
      float* sum = out + s * width;
      for (std::uint32_t j = 0; j < width; ++j) sum[j] = 0.0f;
      for (std::size_t o = offsets[s]; o < offsets[s + 1]; ++o) {
        if (o + kRowsAhead < end) PrefetchRow(rows + std::size_t{inverse[o + kRowsAhead]} * width, width);
        AddScaled(width, weights == nullptr ? 1.0f : weights[o], rows + std::size_t{inverse[o]} * width, sum);
      }
    }
  });
}

void BagBackward(std::size_t samples, std::uint32_t dim, const float* grad_out, const std::uint32_t* inverse,
                 const std::uint32_t* offsets, const float* weights, float* grad_rows) {
  WithWidth(dim, [=](auto width) HWY_ATTR {
    const std::size_t end = samples == 0 ? 0 : offsets[samples];
    for (std::size_t s = 0; s < samples; ++s)
      for (std::size_t o = offsets[s]; o < offsets[s + 1]; ++o) {
        if (o + kRowsAhead < end) PrefetchRow(grad_rows + std::size_t{inverse[o + kRowsAhead]} * width, width);
        AddScaled(width, weights == nullptr ? 1.0f : weights[o], grad_out + s * width,
                  grad_rows + std::size_t{inverse[o]} * width);
      }
  });
}

void ConcatBackward(std::size_t samples, std::uint32_t fields, std::uint32_t dim, const float* grad_out,
                    std::size_t out_stride, const std::uint32_t* inverse, float* grad_rows) {
  WithWidth(dim, [=](auto width) HWY_ATTR {
    const std::size_t end = samples * fields;
    for (std::size_t s = 0; s < samples; ++s)
      for (std::size_t f = 0; f < fields; ++f) {
        const std::size_t o = s * fields + f;
        if (o + kRowsAhead < end) PrefetchRow(grad_rows + std::size_t{inverse[o + kRowsAhead]} * width, width);
        AddScaled(width, 1.0f, grad_out + s * out_stride + f * width, grad_rows + std::size_t{inverse[o]} * width);
      }
  });
}

void AddToAll(std::size_t samples, float bias, float* out) {
  for (std::size_t s = 0; s < samples; ++s) out[s] += bias;
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(BagForward);
HWY_EXPORT(BagBackward);
HWY_EXPORT(ConcatBackward);
HWY_EXPORT(AddToAll);

void EmbeddingBagForward(std::size_t samples, std::uint32_t dim, const float* rows, const std::uint32_t* inverse,
                         const std::uint32_t* offsets, const float* weights, float* out) {
  HWY_DYNAMIC_DISPATCH(BagForward)(samples, dim, rows, inverse, offsets, weights, out);
}

void EmbeddingBagBackward(std::size_t samples, std::uint32_t dim, const float* grad_out, const std::uint32_t* inverse,
                          const std::uint32_t* offsets, const float* weights, float* grad_rows) {
  HWY_DYNAMIC_DISPATCH(BagBackward)(samples, dim, grad_out, inverse, offsets, weights, grad_rows);
}

void EmbeddingConcatForward(std::size_t samples, std::uint32_t fields, std::uint32_t dim, const float* rows,
                            const std::uint32_t* inverse, float* out, std::size_t out_stride) {
  WithWidth(dim, [=](auto width) {
    const std::size_t end = samples * fields;
    for (std::size_t s = 0; s < samples; ++s)
      for (std::size_t f = 0; f < fields; ++f) {
        const std::size_t o = s * fields + f;
        if (o + kRowsAhead < end) PrefetchRow(rows + std::size_t{inverse[o + kRowsAhead]} * width, width);
        std::memcpy(out + s * out_stride + f * width, rows + std::size_t{inverse[o]} * width, width * sizeof(float));
      }
  });
}

void EmbeddingConcatBackward(std::size_t samples, std::uint32_t fields, std::uint32_t dim, const float* grad_out,
                             std::size_t out_stride, const std::uint32_t* inverse, float* grad_rows) {
  HWY_DYNAMIC_DISPATCH(ConcatBackward)(samples, fields, dim, grad_out, out_stride, inverse, grad_rows);
}

void BiasForward(std::size_t samples, const float* rows, const std::uint32_t* row, float* out) {
  HWY_DYNAMIC_DISPATCH(AddToAll)(samples, rows[*row], out);
}

void BiasBackward(std::size_t samples, const float* grad_out, const std::uint32_t* row, float* grad_rows) {
  grad_rows[*row] += static_cast<float>(Sum(samples, grad_out));
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
