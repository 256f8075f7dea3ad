// The update rules of kernels/optimizer.h that a GPU has (HasCudaRule). A team of threads, whose size depends on the
// width of a row, updates a row. Each thread holds kHeld elements in registers and starts all their loads before it
// computes. The same operations in the same order as on the CPU (this folder is compiled without contraction), so the
// bits are the same.
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/math.h"

namespace tarn::kernels::cuda {
namespace {

constexpr unsigned kHeld = 4;

// Slots of a rule that have one element per value of the row.
__host__ __device__ constexpr int SlotsOf(Rule rule) {
  switch (rule) {
    case Rule::kSgd:
    case Rule::kRowWiseAdagrad: return 0;
    case Rule::kMomentum:
    case Rule::kNesterov:
    case Rule::kAdagrad:
    case Rule::kRmsProp: return 1;
    default: return 2;
  }
}

// The elements of a row that a thread holds: four neighbours if the row is aligned to 16 bytes, else every `threads`-th
// element. In both cases neighbouring threads access neighbouring floats.
struct Place {
  std::uint32_t dim, first;
  unsigned step;
  bool by_four;

  __device__ std::uint32_t At(unsigned k) const { return first + k * step; }
  __device__ Floats<kHeld> Load(const float* row) const {
    Floats<kHeld> held = {};
    if (by_four) {
      if (first < dim) held = LoadGlobal<kHeld>(row + first);
    } else {
#pragma unroll
      for (unsigned k = 0; k < kHeld; ++k)
        if (At(k) < dim) held.v[k] = LoadGlobal<1>(row + At(k)).v[0];
    }
    return held;
  }
  __device__ void Store(float* row, const Floats<kHeld>& held) const {
    if (by_four) {
      if (first < dim) cuda::Store(row + first, held);
    } else {
#pragma unroll
      for (unsigned k = 0; k < kHeld; ++k)
        if (At(k) < dim) row[At(k)] = held.v[k];
    }
  }
};

// A row, which its team processes chunk by chunk: kHeld elements per thread.
struct Row {
  float *w, *slots;
  const float* g;
  std::uint32_t dim;
  unsigned threads, lane;
  bool by_four;

  __device__ std::uint32_t chunk() const { return threads * kHeld; }
  __device__ Place PlaceAt(std::uint32_t begin) const {
    return by_four ? Place{dim, begin + lane * kHeld, 1, true} : Place{dim, begin + lane, threads, false};
  }
};

template <int kSlots>
struct Held {
  Floats<kHeld> g, w, slots[kSlots == 0 ? 1 : kSlots];
};

template <int kSlots>
__device__ inline Held<kSlots> LoadHeld(const Row& row, const Place& place) {
  Held<kSlots> held;
  held.g = place.Load(row.g);
  held.w = place.Load(row.w);
#pragma unroll
  for (int s = 0; s < kSlots; ++s) held.slots[s] = place.Load(row.slots + static_cast<std::size_t>(s) * row.dim);
  return held;
}

// The gradient of an element after L2 and clipping by value; ApplyToRow clips by norm.
__device__ inline float Conditioned(const OptimizerStep& s, float g, float w) {
  if (s.l2 != 0.0f) g += s.l2 * w;
  if (s.clip_value == 0.0f) return g;
  const float low = g < -s.clip_value ? -s.clip_value : g;
  return low > s.clip_value ? s.clip_value : low;
}

__device__ inline void Condition(const OptimizerStep& s, float factor, const Floats<kHeld>& w, Floats<kHeld>* g) {
#pragma unroll
  for (unsigned k = 0; k < kHeld; ++k) g->v[k] = Conditioned(s, g->v[k], w.v[k]) * factor;
}

// Space for a chunk of every row of a block. If eight or more threads read a row, rows are eight banks apart.
struct Chunks {
  static constexpr unsigned kGap = kTile;
  alignas(16) float floats[kBlock * kHeld + kBlock / kTile * kGap];

  __device__ float* Of(const Row& row) {
    return floats + threadIdx.x / row.threads * (row.chunk() + (row.threads < kTile ? 0 : kGap));
  }
};

// The sum of the squares of a row's conditioned gradient times `factor`, in the order of kernels/elementwise.h: eight
// partial sums in double. `first`: the thread's elements of the first chunk. Called by all lanes of a warp; all lanes
// of a team get the result.
__device__ double SumOfSquares(const OptimizerStep& step, const Row& row, float factor, const Floats<kHeld>& first,
                               float* shared) {
  double sum = 0;
  const std::uint32_t chunk = row.chunk();
  const auto add_every_eighth = [shared](std::uint32_t j, std::uint32_t end, double to) {
    for (; j < end; j += kTile) to += double(shared[j]) * double(shared[j]);
    return to;
  };
  for (std::uint32_t begin = 0; begin < row.dim; begin += chunk) {
    const Place place = row.PlaceAt(begin);
    Floats<kHeld> g = first;
    if (begin != 0) {
      g = place.Load(row.g);
      Condition(step, factor, step.l2 == 0.0f ? Floats<kHeld>{} : place.Load(row.w), &g);
    }
    __syncwarp();  // until the previous chunk has been read
    Place{chunk, place.first - begin, place.step, place.by_four}.Store(shared, g);
    __syncwarp();
    if (row.threads >= kTile) sum = add_every_eighth(TileLane(), min(chunk, row.dim - begin), sum);
  }
  if (row.threads >= kTile) return SumOfTile(sum);
  // A short row fits one chunk; each of its threads adds all eight partial sums.
  const auto partial = [&](std::uint32_t k) { return add_every_eighth(k, row.dim, 0); };
  return ((partial(0) + partial(4)) + (partial(2) + partial(6))) +
         ((partial(1) + partial(5)) + (partial(3) + partial(7)));
}

// As in kernels/rules/rule-inl.h.
__device__ inline float Bounded(float squares) {
  constexpr float kMax = 3.40282347e+38f;
  return squares > kMax ? kMax : squares;  // unlike fminf, keeps NaN
}

// Values of a rule that belong to the whole row.
struct RowNumbers {
  float rate = 0, root = 0;
};

// Called by all lanes of a warp, as are AddMeanSquare and ApplyToRow. A lane without `writes` repeats the work of
// another lane and must not write.
__device__ inline RowNumbers CountStep(const OptimizerStep& s, const Row& row, bool writes) {
  constexpr float kStepsMax = 1 << 24;  // the largest count that a float reaches by adding one
  float* const count = row.slots + 2 * std::size_t{row.dim};
  const float steps = fminf(*count + 1.0f, kStepsMax);
  __syncwarp();
  if (writes && row.lane == 0) *count = steps;
  const auto t = static_cast<std::uint64_t>(steps);
  return {float(double(s.rate) / (1.0 - math::Power(double(s.beta1), t))),
          float(1.0 / sqrt(1.0 - math::Power(double(s.beta2), t)))};
}

// `before`: the accumulator before this step.
__device__ inline RowNumbers AddMeanSquare(const OptimizerStep& s, const Row& row, bool writes, float before,
                                           double squares) {
  const float a = Bounded(before + float(squares / double(row.dim)));
  if (writes && row.lane == 0) row.slots[0] = a;
  return {s.rate, sqrtf(a) + s.epsilon};
}

__device__ inline void Ftrl(const OptimizerStep& s, float g, float* w, float* z, float* n) {
  const float n_new = Bounded(*n + g * g);
  const float root = sqrtf(n_new);
  const float sigma = (root - sqrtf(*n)) / s.rate;
  const float z_new = *z + (g - sigma * *w);
  const float signed_l1 = z_new < 0.0f ? -s.ftrl_l1 : s.ftrl_l1;
  const float moved = (signed_l1 - z_new) / ((s.ftrl_beta + root) / s.rate + s.ftrl_l2);
  *w = fabsf(z_new) <= s.ftrl_l1 ? 0.0f : moved;
  *z = z_new;
  *n = n_new;
}

__device__ inline void Adam(const OptimizerStep& s, const RowNumbers& of_row, float g, float* w, float* m, float* v) {
  *m = s.beta1 * *m + (1.0f - s.beta1) * g;
  *v = Bounded(s.beta2 * *v + (1.0f - s.beta2) * (g * g));
  *w = *w - of_row.rate * *m / (sqrtf(*v) * of_row.root + s.epsilon);
}

// An element's step; a and b are its slots, if the rule has them.
template <Rule kRule>
__device__ inline void Step(const OptimizerStep& s, const RowNumbers& of_row, float g, float* w, float* a, float* b) {
  if constexpr (kRule == Rule::kSgd) {
    *w -= s.rate * g;
  } else if constexpr (kRule == Rule::kMomentum) {
    *a = s.momentum * *a + g;
    *w -= s.rate * *a;
  } else if constexpr (kRule == Rule::kNesterov) {
    *a = s.momentum * *a + g;
    *w -= s.rate * (g + s.momentum * *a);
  } else if constexpr (kRule == Rule::kAdagrad) {
    *a = Bounded(*a + g * g);
    *w -= s.rate * g / (sqrtf(*a) + s.epsilon);
  } else if constexpr (kRule == Rule::kRowWiseAdagrad) {
    *w -= of_row.rate * g / of_row.root;
  } else if constexpr (kRule == Rule::kRmsProp) {
    *a = Bounded(s.rho * *a + (1.0f - s.rho) * (g * g));
    *w -= s.rate * g / (sqrtf(*a) + s.epsilon);
  } else if constexpr (kRule == Rule::kAdam) {
    Adam(s, of_row, g, w, a, b);
  } else if constexpr (kRule == Rule::kAdamW) {
    *w -= s.rate * s.weight_decay * *w;
    Adam(s, of_row, g, w, a, b);
  } else {
    Ftrl(s, g, w, a, b);
  }
}

// Sums over the row are computed first, from its old values. kByNorm: the gradient is clipped by its norm; a separate
// kernel, because this needs more registers.
template <Rule kRule, bool kByNorm>
__device__ inline void ApplyToRow(const OptimizerStep& step, const Row& row, bool writes, float* shared) {
  constexpr int kSlots = SlotsOf(kRule);
  Held<kSlots> held = LoadHeld<kSlots>(row, row.PlaceAt(0));
  [[maybe_unused]] const float before = kRule == Rule::kRowWiseAdagrad ? row.slots[0] : 0.0f;
  Condition(step, 1.0f, held.w, &held.g);
  float factor = 1.0f;
  if constexpr (kByNorm) {
    const double norm = sqrt(SumOfSquares(step, row, 1.0f, held.g, shared));
    if (norm > double(step.clip_norm)) factor = float(double(step.clip_norm) / norm);
    held.g.Multiply(factor);
  }
  RowNumbers of_row;
  if constexpr (kRule == Rule::kAdam || kRule == Rule::kAdamW) of_row = CountStep(step, row, writes);
  if constexpr (kRule == Rule::kRowWiseAdagrad)
    of_row = AddMeanSquare(step, row, writes, before, SumOfSquares(step, row, factor, held.g, shared));
  for (std::uint32_t begin = 0; begin < row.dim && writes; begin += row.chunk()) {
    const Place place = row.PlaceAt(begin);
    if (begin != 0) {
      held = LoadHeld<kSlots>(row, place);
      Condition(step, factor, held.w, &held.g);
    }
#pragma unroll
    for (unsigned k = 0; k < kHeld; ++k)
      Step<kRule>(step, of_row, held.g.v[k], &held.w.v[k], &held.slots[0].v[k], &held.slots[kSlots == 2 ? 1 : 0].v[k]);
    place.Store(row.w, held.w);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) place.Store(row.slots + static_cast<std::size_t>(s) * row.dim, held.slots[s]);
  }
}

// Threads mostly wait for memory, so this many blocks per multiprocessor are needed to keep it busy.
__host__ __device__ constexpr unsigned BlocksAtOnce(Rule rule) { return SlotsOf(rule) == 2 ? 4 : 5; }

template <Rule kRule, bool kByNorm>
__global__ void __launch_bounds__(kBlock, kByNorm ? 1 : BlocksAtOnce(kRule))
    ApplyKernel(OptimizerStep step, std::uint32_t dim, unsigned threads, std::size_t n, float* const* values,
                float* const* slots, const float* gradients) {
  __shared__ Chunks chunks;
  const unsigned rows_of_warp = kWarp / threads;
  for (std::size_t first = FirstWarp() * rows_of_warp; first < n; first += Warps() * rows_of_warp) {
    const std::size_t mine = first + Lane() / threads, i = mine < n ? mine : first;
    Row row{values[i], slots == nullptr ? nullptr : slots[i], gradients + i * dim, dim, threads, threadIdx.x % threads,
            false};
    const auto address = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p); };
    std::uintptr_t all = address(row.w) | address(row.g);
    if constexpr (SlotsOf(kRule) != 0) all |= address(row.slots);
    row.by_four = dim % kHeld == 0 && all % 16 == 0;
    ApplyToRow<kRule, kByNorm>(step, row, mine < n, chunks.Of(row));
  }
}

template <Rule kRule>
cudaError_t Apply(cudaStream_t stream, const OptimizerStep& step, std::uint32_t dim, std::size_t n,
                  float* const* values, float* const* slots, const float* gradients) {
  const unsigned threads = ThreadsOfRow(dim, kHeld), blocks = BlocksFor(n * threads);
  if (step.clip_norm != 0.0f)
    ApplyKernel<kRule, true><<<blocks, kBlock, 0, stream>>>(step, dim, threads, n, values, slots, gradients);
  else
    ApplyKernel<kRule, false><<<blocks, kBlock, 0, stream>>>(step, dim, threads, n, values, slots, gradients);
  return cudaGetLastError();
}

}  // namespace

cudaError_t ApplyOptimizer(cudaStream_t stream, const OptimizerStep& step, std::uint32_t dim, std::size_t n,
                           float* const* values, float* const* slots, const float* gradients) {
  if (n == 0) return cudaSuccess;
  const auto apply = [=](auto* kernel) { return kernel(stream, step, dim, n, values, slots, gradients); };
  switch (step.rule) {
    case Rule::kSgd: return apply(&Apply<Rule::kSgd>);
    case Rule::kMomentum: return apply(&Apply<Rule::kMomentum>);
    case Rule::kNesterov: return apply(&Apply<Rule::kNesterov>);
    case Rule::kAdagrad: return apply(&Apply<Rule::kAdagrad>);
    case Rule::kRowWiseAdagrad: return apply(&Apply<Rule::kRowWiseAdagrad>);
    case Rule::kRmsProp: return apply(&Apply<Rule::kRmsProp>);
    case Rule::kAdam: return apply(&Apply<Rule::kAdam>);
    case Rule::kAdamW: return apply(&Apply<Rule::kAdamW>);
    case Rule::kFtrl: return apply(&Apply<Rule::kFtrl>);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tarn::kernels::cuda
