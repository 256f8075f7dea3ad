// The optimizers of kernels/optimizer.h: a warp takes a row. The same operations in the same order as on the CPU (this
// folder is compiled without contraction), so the bits are the same.
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/math.h"

namespace tarn::kernels::cuda {
namespace {

// The sum of term(j) for j in [0, n) in the shape of kernels/elementwise.h: eight partial sums in double. Called by all
// lanes of a warp; all get it.
template <typename Term>
__device__ double SumOfTerms(std::uint32_t n, unsigned lane, Term term) {
  double sum = 0;
  if (lane < 8)
    for (std::uint32_t j = lane; j < n; j += 8) sum += term(j);
  const auto of = [sum](int from) { return __shfl_sync(0xffffffffu, sum, from); };
  const double s0 = of(0), s1 = of(1), s2 = of(2), s3 = of(3), s4 = of(4), s5 = of(5), s6 = of(6), s7 = of(7);
  return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7));
}

// A row's gradient after L2 and clipping. The factor of the norm is found first, by the whole warp.
class Gradient {
 public:
  __device__ Gradient(const OptimizerStep& step, std::uint32_t dim, const float* w, const float* g, unsigned lane)
      : step_(step), w_(w), g_(g) {
    if (step.clip_norm == 0.0f) return;
    const double norm = sqrt(SumOfTerms(dim, lane, [this](std::uint32_t j) { return double(At(j)) * double(At(j)); }));
    factor_ = norm > double(step.clip_norm) ? float(double(step.clip_norm) / norm) : 1.0f;
    scaled_ = true;
  }
  __device__ float operator[](std::uint32_t j) const { return scaled_ ? At(j) * factor_ : At(j); }

 private:
  __device__ float At(std::uint32_t j) const {
    float g = g_[j];
    if (step_.l2 != 0.0f) g += step_.l2 * w_[j];
    const float clip = step_.clip_value;
    if (clip == 0.0f) return g;
    const float low = g < -clip ? -clip : g;
    return low > clip ? clip : low;
  }

  const OptimizerStep& step_;
  const float *w_, *g_;
  float factor_ = 1.0f;
  bool scaled_ = false;
};

__device__ void Adam(const OptimizerStep& s, std::uint32_t dim, unsigned lane, const Gradient& g, float* w,
                     float* slots, float decay) {
  constexpr float kStepsMax = 1 << 24;  // the last count to which a float can add one
  float *m = slots, *v = slots + dim, *count = slots + 2 * dim;
  const float steps = fminf(*count + 1.0f, kStepsMax);
  __syncwarp();
  if (lane == 0) *count = steps;
  const auto t = static_cast<std::uint64_t>(steps);
  const float rate = float(double(s.rate) / (1.0 - math::Power(double(s.beta1), t)));
  const float root_scale = float(1.0 / sqrt(1.0 - math::Power(double(s.beta2), t)));
  const float rest1 = 1.0f - s.beta1, rest2 = 1.0f - s.beta2;
  for (std::uint32_t j = lane; j < dim; j += kWarp) {
    const float gj = g[j];
    float wj = w[j];
    if (decay != 0.0f) wj -= decay * wj;
    m[j] = s.beta1 * m[j] + rest1 * gj;
    v[j] = s.beta2 * v[j] + rest2 * (gj * gj);
    w[j] = wj - rate * m[j] / (sqrtf(v[j]) * root_scale + s.epsilon);
  }
}

__device__ void Ftrl(const OptimizerStep& s, std::uint32_t dim, unsigned lane, const Gradient& g, float* w,
                     float* slots) {
  float *z = slots, *n = slots + dim;
  for (std::uint32_t j = lane; j < dim; j += kWarp) {
    const float gj = g[j];
    const float n_new = n[j] + gj * gj;
    const float root = sqrtf(n_new);
    const float sigma = (root - sqrtf(n[j])) / s.rate;
    const float z_new = z[j] + (gj - sigma * w[j]);
    const float signed_l1 = z_new < 0.0f ? -s.ftrl_l1 : s.ftrl_l1;
    const float moved = (signed_l1 - z_new) / ((s.ftrl_beta + root) / s.rate + s.ftrl_l2);
    w[j] = fabsf(z_new) <= s.ftrl_l1 ? 0.0f : moved;
    z[j] = z_new;
    n[j] = n_new;
  }
}

__device__ void RowWiseAdagrad(const OptimizerStep& s, std::uint32_t dim, unsigned lane, const Gradient& g, float* w,
                               float* slots) {
  const double squares = SumOfTerms(dim, lane, [&g](std::uint32_t j) { return double(g[j]) * double(g[j]); });
  const float a = slots[0] + float(squares / double(dim));
  __syncwarp();
  if (lane == 0) slots[0] = a;
  const float root = sqrtf(a) + s.epsilon;
  for (std::uint32_t j = lane; j < dim; j += kWarp) {
    const float gj = g[j];  // before the value changes, of which L2 takes its share
    w[j] -= s.rate * gj / root;
  }
}

// The rules that look at one element at a time and have at most one slot for it.
__device__ void Element(const OptimizerStep& s, float g, float* w, float* slot) {
  switch (s.rule) {
    case Rule::kSgd: *w -= s.rate * g; return;
    case Rule::kMomentum:
      *slot = s.momentum * *slot + g;
      *w -= s.rate * *slot;
      return;
    case Rule::kNesterov:
      *slot = s.momentum * *slot + g;
      *w -= s.rate * (g + s.momentum * *slot);
      return;
    case Rule::kAdagrad:
      *slot += g * g;
      *w -= s.rate * g / (sqrtf(*slot) + s.epsilon);
      return;
    default:  // RMSProp
      *slot = s.rho * *slot + (1.0f - s.rho) * (g * g);
      *w -= s.rate * g / (sqrtf(*slot) + s.epsilon);
  }
}

__global__ void ApplyKernel(OptimizerStep step, std::uint32_t dim, std::size_t n, float* const* values,
                            float* const* slots, const float* gradients) {
  const unsigned lane = Lane();
  for (std::size_t i = FirstWarp(); i < n; i += Warps()) {
    float* w = values[i];
    float* slot = slots == nullptr ? nullptr : slots[i];
    const Gradient g(step, dim, w, gradients + i * dim, lane);
    switch (step.rule) {
      case Rule::kAdam: Adam(step, dim, lane, g, w, slot, 0.0f); break;
      case Rule::kAdamW: Adam(step, dim, lane, g, w, slot, step.rate * step.weight_decay); break;
      case Rule::kFtrl: Ftrl(step, dim, lane, g, w, slot); break;
      case Rule::kRowWiseAdagrad: RowWiseAdagrad(step, dim, lane, g, w, slot); break;
      default:
        for (std::uint32_t j = lane; j < dim; j += kWarp)
          Element(step, g[j], w + j, step.rule == Rule::kSgd ? nullptr : slot + j);
    }
  }
}

}  // namespace

cudaError_t ApplyOptimizer(cudaStream_t stream, const OptimizerStep& step, std::uint32_t dim, std::size_t n,
                           float* const* values, float* const* slots, const float* gradients) {
  if (n == 0) return cudaSuccess;
  ApplyKernel<<<BlocksFor(n * kWarp), kBlock, 0, stream>>>(step, dim, n, values, slots, gradients);
  return cudaGetLastError();
}

}  // namespace tarn::kernels::cuda
