// The operations of kernels/*.h on a Stream: launches (kernels/cuda/launch.h) whose errors the stream keeps.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/error.h"
#include "core/limits.h"
#include "kernels/convert.h"
#include "kernels/cross.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/native.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/interaction.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"
#include "kernels/rows.h"

namespace tarn::kernels {

void Fill(Stream& s, std::size_t n, float value, float* out) {
  s.native().Note(cuda::Fill(s.native().stream, n, value, out), "Fill");
}
void Add(Stream& s, std::size_t n, const float* in, float* out) {
  s.native().Note(cuda::Add(s.native().stream, n, in, out), "Add");
}
void Scale(Stream& s, std::size_t n, float factor, float* out) {
  s.native().Note(cuda::Scale(s.native().stream, n, factor, out), "Scale");
}
void Relu(Stream& s, std::size_t n, float* out) { s.native().Note(cuda::Relu(s.native().stream, n, out), "Relu"); }
void ReluBackward(Stream& s, std::size_t n, const float* y, float* dy) {
  s.native().Note(cuda::ReluBackward(s.native().stream, n, y, dy), "ReluBackward");
}

void AddSquaredNorm(Stream& s, std::size_t n, const float* in, double* parts) {
  s.native().Note(cuda::AddSquaredNorm(s.native().stream, n, in, parts), "AddSquaredNorm");
}
void ClipScale(Stream& s, double* parts, float unit, float norm_max, float* factor) {
  s.native().Note(cuda::ClipScale(s.native().stream, parts, unit, norm_max, factor), "ClipScale");
}
void Scale(Stream& s, std::size_t n, const float* factor, float* out) {
  s.native().Note(cuda::ScaleByFactor(s.native().stream, n, factor, out), "Scale");
}

void CrossForward(Stream& s, std::size_t n, const float* x0, const float* y, const float* x, float* out) {
  s.native().Note(cuda::CrossForward(s.native().stream, n, x0, y, x, out), "CrossForward");
}
void CrossBackward(Stream& s, std::size_t n, const float* x0, const float* y, const float* grad_out, float* grad_y,
                   float* grad_x0) {
  s.native().Note(cuda::CrossBackward(s.native().stream, n, x0, y, grad_out, grad_y, grad_x0), "CrossBackward");
}

void FloatToBf16(Stream& s, std::size_t n, const float* in, std::uint16_t* out) {
  s.native().Note(cuda::FloatToBf16(s.native().stream, n, in, out), "FloatToBf16");
}
void Bf16ToFloat(Stream& s, std::size_t n, const std::uint16_t* in, float* out) {
  s.native().Note(cuda::Bf16ToFloat(s.native().stream, n, in, out), "Bf16ToFloat");
}
void FloatToFp16(Stream& s, std::size_t n, const float* in, std::uint16_t* out) {
  s.native().Note(cuda::FloatToFp16(s.native().stream, n, in, out), "FloatToFp16");
}
void Fp16ToFloat(Stream& s, std::size_t n, const std::uint16_t* in, float* out) {
  s.native().Note(cuda::Fp16ToFloat(s.native().stream, n, in, out), "Fp16ToFloat");
}
void EncodeInt8Rows(Stream& s, std::uint32_t dim, std::size_t n, const float* in, std::byte* out) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  s.native().Note(cuda::EncodeInt8Rows(s.native().stream, dim, n, in, out), "EncodeInt8Rows");
}
void DecodeInt8Rows(Stream& s, std::uint32_t dim, std::size_t n, const std::byte* in, float* out) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  s.native().Note(cuda::DecodeInt8Rows(s.native().stream, dim, n, in, out), "DecodeInt8Rows");
}

void GatherByIndex(Stream& s, std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index,
                   float* out) {
  s.native().Note(cuda::GatherByIndex(s.native().stream, dim, n, in, index, out), "GatherByIndex");
}
void ScatterByIndex(Stream& s, std::uint32_t dim, std::size_t n, const float* in, const std::uint32_t* index,
                    float* out) {
  s.native().Note(cuda::ScatterByIndex(s.native().stream, dim, n, in, index, out), "ScatterByIndex");
}
void CopyColumns(Stream& s, std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                 std::size_t out_stride) {
  s.native().Note(cuda::CopyColumns(s.native().stream, rows, columns, in, in_stride, out, out_stride), "CopyColumns");
}
void AddColumns(Stream& s, std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                std::size_t out_stride) {
  s.native().Note(cuda::AddColumns(s.native().stream, rows, columns, in, in_stride, out, out_stride), "AddColumns");
}

void EmbeddingBagForward(Stream& s, std::size_t samples, std::uint32_t dim, const float* rows,
                         const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights, float* out) {
  s.native().Note(cuda::EmbeddingBagForward(s.native().stream, samples, dim, rows, inverse, offsets, weights, out),
                  "EmbeddingBagForward");
}
void EmbeddingConcatForward(Stream& s, std::size_t samples, std::uint32_t fields, std::uint32_t dim, const float* rows,
                            const std::uint32_t* inverse, float* out, std::size_t out_stride) {
  TARN_CHECK(samples * fields < (std::size_t{1} << 31), "occurrences have 31 bits");
  s.native().Note(cuda::EmbeddingConcatForward(s.native().stream, samples, fields, dim, rows, inverse, out, out_stride),
                  "EmbeddingConcatForward");
}
void BiasForward(Stream& s, std::size_t samples, const float* rows, const std::uint32_t* row, float* out) {
  s.native().Note(cuda::BiasForward(s.native().stream, samples, rows, row, out), "BiasForward");
}
void BiasBackward(Stream& s, std::size_t samples, const float* grad_out, const std::uint32_t* row, float* grad_rows) {
  s.native().Note(cuda::BiasBackward(s.native().stream, samples, grad_out, row, grad_rows), "BiasBackward");
}

void InteractionForward(Stream& s, std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                        float* out) {
  TARN_CHECK(IsInteraction(vectors, dim), "a sample is within the bounds of an interaction");
  s.native().Note(cuda::InteractionForward(s.native().stream, samples, vectors, dim, in, out), "InteractionForward");
}
void InteractionBackward(Stream& s, std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                         const float* grad_out, float* grad_in) {
  TARN_CHECK(IsInteraction(vectors, dim), "a sample is within the bounds of an interaction");
  s.native().Note(cuda::InteractionBackward(s.native().stream, samples, vectors, dim, in, grad_out, grad_in),
                  "InteractionBackward");
}

namespace {

struct CudaRule {
  std::string_view name;
  cuda::Rule rule;
};
constexpr CudaRule kCudaRules[] = {{"sgd", cuda::Rule::kSgd},
                                   {"momentum", cuda::Rule::kMomentum},
                                   {"nesterov", cuda::Rule::kNesterov},
                                   {"adagrad", cuda::Rule::kAdagrad},
                                   {"row_wise_adagrad", cuda::Rule::kRowWiseAdagrad},
                                   {"rmsprop", cuda::Rule::kRmsProp},
                                   {"adam", cuda::Rule::kAdam},
                                   {"adamw", cuda::Rule::kAdamW},
                                   {"ftrl", cuda::Rule::kFtrl}};

const CudaRule* FindCudaRule(std::string_view name) {
  const auto found = std::ranges::find(kCudaRules, name, &CudaRule::name);
  return found == std::end(kCudaRules) ? nullptr : found;
}

}  // namespace

bool HasCudaRule(const OptimizerSpec& spec) { return FindCudaRule(spec.kind) != nullptr; }

void ApplyOptimizer(Stream& s, const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n,
                    float* const* values, float* const* slots, const float* gradients) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  const CudaRule* rule = FindCudaRule(spec.kind);
  TARN_CHECK(rule != nullptr, "the rule has no GPU kernel (HasCudaRule)");
  const cuda::OptimizerStep step{.rule = rule->rule,
                                 .rate = LearningRate(spec, push_clock),
                                 .momentum = OptionOf(spec, "momentum"),
                                 .rho = OptionOf(spec, "rho"),
                                 .beta1 = OptionOf(spec, "beta1"),
                                 .beta2 = OptionOf(spec, "beta2"),
                                 .epsilon = OptionOf(spec, "epsilon"),
                                 .weight_decay = OptionOf(spec, "weight_decay"),
                                 .ftrl_beta = OptionOf(spec, "ftrl_beta"),
                                 .ftrl_l1 = OptionOf(spec, "ftrl_l1"),
                                 .ftrl_l2 = OptionOf(spec, "ftrl_l2"),
                                 .l2 = spec.l2,
                                 .clip_value = spec.clip_value,
                                 .clip_norm = spec.clip_norm};
  if (FindUpdateRule(spec.kind)->divides_by_rate && step.rate == 0.0f) return;
  s.native().Note(cuda::ApplyOptimizer(s.native().stream, step, dim, n, values, slots, gradients), "ApplyOptimizer");
}

}  // namespace tarn::kernels
