// Describes matrix products to cuBLASLt and chooses its algorithms.
//
// cuBLASLt's matrices are column-major, so it interprets each of ours as the transpose. Therefore it computes C' =
// op(B)' op(A)': b is its first factor and a its second, n its rows and m its columns. Its row-wise operations (the
// bias, the mask's bits, DRELU's bias gradient) are along our columns, as required.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/gemm_state.h"

namespace tarn::kernels {
namespace {

constexpr int kCandidates = 16;                         // algorithms that are requested from cuBLASLt
constexpr std::chrono::milliseconds kMeasureTime(300);  // per product: no candidate is tried after this time
constexpr std::uint32_t kAlignmentMax = 256;            // what cuBLASLt distinguishes
constexpr std::uint32_t kEpilogueAlignment = 16;        // of a bias and a mask that are fused

cudaDataType_t TypeOf(Element element) {
  switch (element) {
    case Element::kFp32: return CUDA_R_32F;
    case Element::kBf16: return CUDA_R_16BF;
    case Element::kFp16: return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kRelu: return CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kReluBias: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kReluMask: return CUBLASLT_EPILOGUE_RELU_AUX;
    case Epilogue::kReluBiasMask: return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case Epilogue::kReluGradient: return CUBLASLT_EPILOGUE_DRELU;
    case Epilogue::kReluBiasGradient: return CUBLASLT_EPILOGUE_DRELU_BGRAD;
    case Epilogue::kBiasGradient: return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool WritesMask(Epilogue e) { return e == Epilogue::kReluMask || e == Epilogue::kReluBiasMask; }
bool HasMask(Epilogue e) { return WritesMask(e) || e == Epilogue::kReluGradient || e == Epilogue::kReluBiasGradient; }
bool WritesBias(Epilogue e) { return e == Epilogue::kReluBiasGradient || e == Epilogue::kBiasGradient; }
bool HasBias(Epilogue e) {
  return WritesBias(e) || e == Epilogue::kBias || e == Epilogue::kReluBias || e == Epilogue::kReluBiasMask;
}

std::uint32_t AlignmentOf(const void* p) {
  return static_cast<std::uint32_t>(std::uint64_t{1}
                                    << std::countr_zero(reinterpret_cast<std::uintptr_t>(p) | kAlignmentMax));
}

// Cases in which cuBLASLt's epilogues are known to fail although it reports support: gradients whose sums have a single
// product, bias gradients of a single row (nvmath-python's tests exclude both), and a bias that is not aligned to whole
// vectors.
bool CanFuse(const Product& p) {
  if (p.epilogue == Epilogue::kNone) return false;
  if (HasBias(p.epilogue) && AlignmentOf(p.bias) < kEpilogueAlignment) return false;
  const bool gradient = WritesBias(p.epilogue) || p.epilogue == Epilogue::kReluGradient;
  return !(gradient && p.shape.k == 1) && !(p.epilogue == Epilogue::kBiasGradient && p.shape.m == 1);
}

// The planned part of a product: only the product if its epilogue is a separate pass.
Product PlannedOf(const Product& p) {
  Product planned = p;
  if (!CanFuse(p)) planned.epilogue = Epilogue::kNone, planned.bias = nullptr, planned.mask = nullptr;
  return planned;
}

// Alignment of the matrices: a plan is valid for all matrices of this alignment.
std::uint32_t AlignmentOf(const Product& p) {
  return std::min({AlignmentOf(p.a.data), AlignmentOf(p.b.data), AlignmentOf(p.c.data)});
}

GemmKey KeyOf(const Product& p) {
  return {.m = p.shape.m,
          .n = p.shape.n,
          .k = p.shape.k,
          .precision = p.precision,
          .factors = p.a.element,
          .c = p.c.element,
          .a_transpose = p.a.transpose,
          .b_transpose = p.b.transpose,
          .a_stride = p.a.stride,
          .b_stride = p.b.stride,
          .c_stride = p.c.stride,
          .beta = p.beta != 0.0f,
          .alignment = AlignmentOf(p),
          .epilogue = p.epilogue};
}

// For a matrix of `rows` x `columns` in memory order.
cublasStatus_t MakeLayout(Element element, std::size_t rows, std::size_t columns, std::size_t stride, LtLayout* out) {
  cublasLtMatrixLayout_t layout = nullptr;
  const cublasStatus_t status =
      cublasLtMatrixLayoutCreate(&layout, TypeOf(element), columns, rows, static_cast<std::int64_t>(stride));
  out->reset(layout);
  return status;
}

cublasStatus_t MakeFactorLayout(std::size_t rows, std::size_t columns, const DeviceMatrixIn& matrix, LtLayout* out) {
  if (matrix.transpose == Transpose::kYes) std::swap(rows, columns);
  return MakeLayout(matrix.element, rows, columns, matrix.stride, out);
}

// Sets attributes until one fails.
class Attributes {
 public:
  explicit Attributes(cublasLtMatmulDesc_t operation) : operation_(operation) {}
  template <typename T>
  Attributes& Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    if (status_ == CUBLAS_STATUS_SUCCESS)
      status_ = cublasLtMatmulDescSetAttribute(operation_, attribute, static_cast<const void*>(&value), sizeof value);
    return *this;
  }
  cublasStatus_t status() const { return status_; }

 private:
  cublasLtMatmulDesc_t operation_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

cublasStatus_t SetPointers(const GemmPlan& plan, Epilogue epilogue, const void* bias, const void* mask) {
  Attributes attributes(plan.operation.get());
  if (plan.fused && HasBias(epilogue)) attributes.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (plan.fused && HasMask(epilogue)) attributes.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
  return attributes.status();
}

cublasStatus_t MakeOperation(const Product& p, bool fused, GemmPlan* plan) {
  cublasLtMatmulDesc_t operation = nullptr;
  const auto compute = p.precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  if (const auto status = cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F); status != CUBLAS_STATUS_SUCCESS)
    return status;
  plan->operation.reset(operation);
  plan->fused = fused;
  Attributes attributes(operation);
  const auto op = [](const DeviceMatrixIn& m) { return m.transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  attributes.Set(CUBLASLT_MATMUL_DESC_TRANSA, op(p.b)).Set(CUBLASLT_MATMUL_DESC_TRANSB, op(p.a));
  if (fused) attributes.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(p.epilogue));
  if (fused && HasMask(p.epilogue))
    attributes.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(ReluMaskStride(p.shape.n) * 32));
  return attributes.status();
}

// A plan without its algorithm. cuBLASLt's heuristic considers the alignment of pointers, so bias and mask get
// placeholder pointers with exactly the alignment that the plan may rely on.
cublasStatus_t Describe(const Stream::Native& native, const Product& p, bool fused, GemmPlan* plan) {
  const auto [m, n, k] = p.shape;
  const std::byte* const aligned = static_cast<const std::byte*>(native.workspace) + kEpilogueAlignment;
  cublasStatus_t status = MakeOperation(p, fused, plan);
  if (status == CUBLAS_STATUS_SUCCESS) status = SetPointers(*plan, p.epilogue, aligned, aligned);
  if (status == CUBLAS_STATUS_SUCCESS) status = MakeFactorLayout(m, k, p.a, &plan->a);
  if (status == CUBLAS_STATUS_SUCCESS) status = MakeFactorLayout(k, n, p.b, &plan->b);
  if (status == CUBLAS_STATUS_SUCCESS) status = MakeLayout(p.c.element, m, n, p.c.stride, &plan->c);
  return status;
}

using LtPreference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, Destroyer<cublasLtMatmulPreferenceDestroy>>;

cublasStatus_t MakePreference(const Product& p, LtPreference* out) {
  cublasLtMatmulPreference_t preference = nullptr;
  cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
  out->reset(preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{Stream::Native::kWorkspaceBytes});
  // Partial sums are added in fp32; in C itself only if C is fp32.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE} |
          (p.c.element == Element::kFp32 ? std::uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE} : 0u));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(p));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(p));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(p));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(p));
  return status;
}

// cuBLASLt's algorithms for the plan, in the order of its estimate, fastest first; an empty list is not an error.
cublasStatus_t Candidates(const Stream::Native& native, const Product& p, const GemmPlan& plan,
                          std::vector<cublasLtMatmulAlgo_t>* out) {
  LtPreference preference;
  if (const auto status = MakePreference(p, &preference); status != CUBLAS_STATUS_SUCCESS) return status;
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(native.blas, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                     plan.c.get(), preference.get(), kCandidates, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return CUBLAS_STATUS_SUCCESS;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(found)))
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= Stream::Native::kWorkspaceBytes)
      out->push_back(result.algo);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t RunProduct(const Stream::Native& native, const GemmPlan& plan, const Product& p) {
  if (const auto status = SetPointers(plan, p.epilogue, p.bias, p.mask); status != CUBLAS_STATUS_SUCCESS) return status;
  return cublasLtMatmul(native.blas, plan.operation.get(), &p.alpha, p.b.data, plan.b.get(), p.a.data, plan.a.get(),
                        &p.beta, p.c.data, plan.c.get(), p.c.data, plan.c.get(), &plan.algorithm, native.workspace,
                        Stream::Native::kWorkspaceBytes, native.stream);
}

// Outputs of measured runs, so that the caller's are not changed.
class TrialMemory {
 public:
  TrialMemory(Stream::Native& native, const Product& p) : native_(native), product_(p) {
    const std::size_t c = Rounded(p.shape.m * p.c.stride * (p.c.element == Element::kFp32 ? 4 : 2));
    const std::size_t bias = Rounded(std::max(p.shape.m, p.shape.n) * sizeof(float));
    const std::size_t mask = Rounded(ReluMaskWords(p.shape.m, p.shape.n) * sizeof(std::uint32_t));
    if (native_.Allocate(c + bias + mask, &memory_) != cudaSuccess) {
      cudaGetLastError();
      memory_ = nullptr;
      return;
    }
    auto* at = static_cast<std::byte*>(memory_);
    product_.c.data = at;
    if (WritesBias(p.epilogue)) product_.bias = at + c;
    if (WritesMask(p.epilogue)) product_.mask = reinterpret_cast<std::uint32_t*>(at + c + bias);
  }
  ~TrialMemory() {
    if (memory_ != nullptr) native_.Note(native_.Release(memory_), "freeing the memory of measured products");
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

  bool ok() const { return memory_ != nullptr; }
  const Product& product() const { return product_; }

 private:
  static std::size_t Rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  Stream::Native& native_;
  Product product_;
  void* memory_ = nullptr;
};

using Recording = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroyer<cudaGraphDestroy>>;
using Replay = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroyer<cudaGraphExecDestroy>>;

// A graph of `runs` runs of `f`; null if it cannot be recorded.
template <typename F>
Replay Record(cudaStream_t stream, int runs, F f) {
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return nullptr;
  bool ok = true;
  for (int run = 0; run < runs; ++run) ok = ok && f();
  cudaGraph_t graph = nullptr;
  ok = cudaStreamEndCapture(stream, &graph) == cudaSuccess && ok;
  const Recording recording(graph);
  cudaGraphExec_t replay = nullptr;
  if (!ok || cudaGraphInstantiate(&replay, graph, 0) != cudaSuccess) return nullptr;
  return Replay(replay);
}

// Times work on a stream. A large product is measured by a single run. A small one takes the GPU less time than the
// host needs to launch it, so many runs are recorded into a graph, which is launched several times in a row. The first
// launch is not timed: while it runs, the host submits the next.
class StopWatch {
 public:
  explicit StopWatch(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t& event : events_) ok_ = cudaEventCreate(&event) == cudaSuccess && ok_;
  }
  ~StopWatch() {
    for (const cudaEvent_t event : events_)
      if (event != nullptr) cudaEventDestroy(event);
    cudaGetLastError();  // clears the error of a failed run
  }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  static constexpr float kNever = std::numeric_limits<float>::infinity();

  // Microseconds of one run of `f`, which returns whether it succeeded. kNever if it failed, or if its first run is
  // much slower than the best measured one.
  template <typename F>
  float Measure(F f) {
    const float us = ok_ ? Try(f) : kNever;
    if (us == kNever) cudaGetLastError();  // clears the error of a failed run
    return us;
  }

 private:
  static constexpr int kTries = 3;

  template <typename F>
  float Try(F f) {
    constexpr float kTryUs = 500.0f, kLaunchUs = 10.0f, kMuchSlower = 1.5f;
    const float once = Best(1, f);  // the untimed run before may load the kernel
    if (once > kMuchSlower * (shortest_ + kLaunchUs)) return kNever;
    shortest_ = std::min(shortest_, once);
    if (once >= kTryUs) return once;
    const int runs = static_cast<int>(std::min(kTryUs / std::max(once, 1.0f), 100.0f));
    const Replay replay = Record(stream_, runs, f);
    if (replay == nullptr) return kNever;
    return Best(kTries, [&] { return cudaGraphLaunch(replay.get(), stream_) == cudaSuccess; }) /
           static_cast<float>(runs);
  }

  // The time of the fastest of `tries` runs, in microseconds, after one run that is not timed.
  template <typename F>
  float Best(int tries, F f) {
    bool ok = f() && cudaEventRecord(events_[0], stream_) == cudaSuccess;
    for (int i = 1; i <= tries; ++i) ok = ok && f() && cudaEventRecord(events_[i], stream_) == cudaSuccess;
    if (!ok || cudaEventSynchronize(events_[tries]) != cudaSuccess) return kNever;
    float best = kNever;
    for (int i = 1; i <= tries; ++i) {
      float ms = 0;
      if (cudaEventElapsedTime(&ms, events_[i - 1], events_[i]) != cudaSuccess) return kNever;
      best = std::min(best, ms * 1000);
    }
    return best;
  }

  cudaStream_t stream_;
  std::array<cudaEvent_t, kTries + 1> events_ = {};
  bool ok_ = true;
  float shortest_ = kNever;  // time of the fastest single run so far, including its launch
};

// Makes plans of one product.
class Planner {
 public:
  Planner(Stream::Native& native, const Product& product) : native_(native), product_(product) {}

  // Sets the plan to an algorithm chosen before. False: it is not valid here.
  bool Restore(const GemmChoice& choice, GemmPlan* plan) {
    if (choice.fused && !CanFuse(product_)) return false;
    if (Describe(native_, product_, choice.fused, plan) != CUBLAS_STATUS_SUCCESS) return false;
    static_assert(sizeof plan->algorithm.data == sizeof choice.algorithm);
    std::copy(choice.algorithm.begin(), choice.algorithm.end(), plan->algorithm.data);
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoCheck(native_.blas, plan->operation.get(), plan->b.get(), plan->a.get(), plan->c.get(),
                                   plan->c.get(), &plan->algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= Stream::Native::kWorkspaceBytes;
  }

  // The fastest of the candidates (fused and unfused alternately) that could be tried within kMeasureTime; none if
  // there is no memory to try them, or if none runs. A later candidate must be 3% faster than the best one before it,
  // because cuBLASLt expects the earlier ones to be faster.
  std::optional<GemmChoice> Measure(GemmPlan* plan) {
    constexpr float kClearly = 0.97f;
    const TrialMemory trial(native_, product_);
    if (!trial.ok() || cudaStreamSynchronize(native_.stream) != cudaSuccess) return std::nullopt;
    StopWatch watch(native_.stream);
    GemmPlan described[2];
    const std::vector<cublasLtMatmulAlgo_t> candidates[] = {Find(false, &described[0]), Find(true, &described[1])};
    GemmChoice best{.us = StopWatch::kNever};
    const auto end = std::chrono::steady_clock::now() + kMeasureTime;
    for (std::size_t i = 0; i < kCandidates; ++i)
      for (const bool fused : {true, false}) {
        if (i >= candidates[fused].size()) continue;
        if (best.us != StopWatch::kNever && std::chrono::steady_clock::now() > end) break;
        GemmPlan& candidate = described[fused];
        candidate.algorithm = candidates[fused][i];
        const float us = watch.Measure([&] {
          return RunProduct(native_, candidate, trial.product()) == CUBLAS_STATUS_SUCCESS &&
                 (fused || RunEpilogue(native_, trial.product()) == cudaSuccess);
        });
        if (us < kClearly * best.us)
          best = {.fused = fused, .us = us, .algorithm = std::to_array(candidate.algorithm.data)};
      }
    if (best.us == StopWatch::kNever || !Restore(best, plan)) return std::nullopt;
    return best;
  }

  // Sets the plan to the algorithm that cuBLASLt expects to be the fastest, fused if possible. False: there is none.
  bool First(GemmPlan* plan) { return UseEstimate(true, plan) || UseEstimate(false, plan); }

  // The next algorithm in cuBLASLt's order, after one that failed to run.
  bool Next(GemmPlan* plan) {
    if (!plan->expected) return First(plan);
    return TakeNext(plan) || (plan->fused && UseEstimate(false, plan));
  }

  // Why there was no candidate.
  cublasStatus_t status() const { return status_ == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status_; }

 private:
  std::vector<cublasLtMatmulAlgo_t> Find(bool fused, GemmPlan* plan) {
    std::vector<cublasLtMatmulAlgo_t> candidates;
    if (fused && !CanFuse(product_)) return candidates;
    status_ = Describe(native_, product_, fused, plan);
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = Candidates(native_, product_, *plan, &candidates);
    return candidates;
  }

  bool UseEstimate(bool fused, GemmPlan* plan) {
    plan->others = Find(fused, plan);
    plan->expected = true;
    std::ranges::reverse(plan->others);
    return TakeNext(plan);
  }

  static bool TakeNext(GemmPlan* plan) {
    if (plan->others.empty()) return false;
    plan->algorithm = plan->others.back();
    plan->others.pop_back();
    return true;
  }

  Stream::Native& native_;
  const Product& product_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;  // of the last query
};

// Makes the plan of a product that is new to the stream, with the algorithm measured before, else with cuBLASLt's
// estimate. Returns false after an error, which it passes to Note.
bool Make(Stream::Native& native, const Product& product, const GemmKey& key, GemmPlan* plan) {
  Planner planner(native, product);
  GemmAlgorithms* const algorithms = native.gemm->algorithms;
  if (algorithms != nullptr) {
    if (const GemmChoice* choice = algorithms->Find(key); choice != nullptr && planner.Restore(*choice, plan))
      return true;
    plan->measure_at = MeasureAt::kSecondUse;
  }
  if (planner.First(plan)) return true;
  native.Note(planner.status(), "a matrix product");
  return false;
}

// Whether this is the same product that made the plan, not another one of its shape: layers of equal shape differ in
// their second factors (weights or inputs). If memory was allocated or freed since the first use, an address may belong
// to another layer; then, and at the first use, records this use as the first.
bool IsSecondUse(const Stream::Native& native, const void* b, GemmPlan* plan) {
  const GemmPlan::FirstUse& first = plan->first_use;
  if (first.b != nullptr && first.memory_version == native.memory_version) return first.b == b;
  plan->first_use = {.b = b, .memory_version = native.memory_version};
  return false;
}

// Sets the plan's algorithm to the fastest; unchanged if none can be measured.
void Measure(Stream::Native& native, const Product& product, const GemmKey& key, GemmPlan* plan) {
  GemmPlan measured;
  if (const auto choice = Planner(native, product).Measure(&measured)) {
    native.gemm->algorithms->Keep(key, *choice);
    *plan = std::move(measured);
  }
  plan->measure_at = MeasureAt::kNever;
}

// Whether the status means that cuBLASLt rejects the algorithm, and not that the GPU failed.
bool IsRefusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

}  // namespace

GemmPlan* PlanOf(Stream::Native& native, const Product& of, const void* b) {
  auto& plans = native.gemm->plans;
  const Product product = PlannedOf(of);
  const GemmKey key = KeyOf(product);
  auto found = plans.find(key);
  if (found == plans.end()) {
    // The first run of a kernel may load it.
    if (native.Refuses("a matrix product is of a new shape")) return nullptr;
    GemmPlan made;
    if (!Make(native, product, key, &made)) return nullptr;
    if (plans.size() >= GemmState::kPlansMax) plans.clear();
    found = plans.emplace(key, std::move(made)).first;
  }
  GemmPlan* const plan = &found->second;
  if (plan->measure_at == MeasureAt::kNever) return plan;
  // Measuring takes memory and waits.
  if (native.Refuses("the algorithm of a matrix product has yet to be measured")) {
    plan->measure_at = MeasureAt::kNextUse;
    return nullptr;
  }
  if (plan->measure_at == MeasureAt::kNextUse || IsSecondUse(native, b, plan)) Measure(native, product, key, plan);
  return plan;
}

// cuBLASLt may reject at run time what it reported as supported, above all epilogues.
void RunPlan(Stream::Native& native, GemmPlan* plan, const Product& product) {
  cublasStatus_t status = RunProduct(native, *plan, product);
  const Product planned = PlannedOf(product);
  for (Planner planner(native, planned); IsRefusal(status) && planner.Next(plan);)
    status = RunProduct(native, *plan, product);
  native.Note(status, "a matrix product");
  if (status != CUBLAS_STATUS_SUCCESS)
    native.gemm->plans.erase(KeyOf(planned));
  else if (!plan->fused)
    native.Note(RunEpilogue(native, product), "the epilogue of a matrix product");
}

cudaError_t RunEpilogue(const Stream::Native& native, const Product& p) {
  const auto [m, n, k] = p.shape;
  auto* const partial = static_cast<float*>(native.workspace);
  constexpr std::size_t kPartialFloats = Stream::Native::kWorkspaceBytes / sizeof(float);
  switch (p.epilogue) {
    case Epilogue::kNone: return cudaSuccess;
    case Epilogue::kBias: return cuda::AddBias(native.stream, m, n, p.c, p.bias, false, nullptr);
    case Epilogue::kRelu: return cuda::AddBias(native.stream, m, n, p.c, nullptr, true, nullptr);
    case Epilogue::kReluBias: return cuda::AddBias(native.stream, m, n, p.c, p.bias, true, nullptr);
    case Epilogue::kReluMask: return cuda::AddBias(native.stream, m, n, p.c, nullptr, true, p.mask);
    case Epilogue::kReluBiasMask: return cuda::AddBias(native.stream, m, n, p.c, p.bias, true, p.mask);
    case Epilogue::kReluGradient: return cuda::ApplyMask(native.stream, m, n, p.c, p.mask);
    case Epilogue::kReluBiasGradient:
      if (const cudaError_t error = cuda::ApplyMask(native.stream, m, n, p.c, p.mask); error != cudaSuccess)
        return error;
      return cuda::SumColumns(native.stream, m, n, p.c.data, p.c.element, p.c.stride, p.bias, p.c.element, partial,
                              kPartialFloats);
    case Epilogue::kBiasGradient:
      return cuda::SumColumns(native.stream, k, m, p.a.data, p.a.element, p.a.stride, p.bias, p.c.element, partial,
                              kPartialFloats);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tarn::kernels
