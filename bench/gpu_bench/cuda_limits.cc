#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bench/gpu_bench/limits.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kCandidates = 64;  // at most so many algorithms are tried per product

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Die(std::string("CUDA error (") + what + "): " + cudaGetErrorString(error));
}
void Check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    Die(std::string("cuBLASLt error (") + what + "): " + cublasLtGetStatusString(status));
}

class Memory {
 public:
  Memory(std::size_t bytes, const char* what) { Check(cudaMalloc(&data_, bytes), what); }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Host memory, pinned or pageable.
class HostMemory {
 public:
  HostMemory(std::size_t bytes, bool pinned) : pinned_(pinned) {
    if (pinned)
      Check(cudaMallocHost(&data_, bytes), "pinned memory");
    else if (data_ = std::malloc(bytes); data_ == nullptr)
      Die("cannot allocate " + std::to_string(bytes) + " bytes of host memory");
    std::memset(data_, 1, bytes);
  }
  ~HostMemory() { pinned_ ? void(cudaFreeHost(data_)) : std::free(data_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* data() const { return data_; }

 private:
  bool pinned_;
  void* data_ = nullptr;
};

// Numbers between -1 and 1, because products of zeros are faster.
void FillWithBf16(const Memory& memory, std::size_t n) {
  std::vector<std::uint16_t> block(std::min(n, std::size_t{1} << 20));
  SplitMix random(n);
  for (std::uint16_t& v : block) {
    const auto bits = random.Next();
    v = static_cast<std::uint16_t>((bits & 0x807f) | ((119 + (bits >> 32) % 8) << 7));
  }
  auto* const to = static_cast<std::uint16_t*>(memory.data());
  for (std::size_t at = 0; at < n; at += block.size())
    Check(cudaMemcpy(to + at, block.data(), std::min(block.size(), n - at) * 2, cudaMemcpyHostToDevice), "a matrix");
}

// The description of a product for cuBLASLt, which uses column-major order. It reads a row-major matrix as the
// transpose, so B is its first operand: C^T = op(B)^T op(A)^T.
class Description {
 public:
  explicit Description(const ProductShape& s) {
    Check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool yes) {
      const std::int32_t value = yes ? CUBLAS_OP_T : CUBLAS_OP_N;
      Check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), "a product");
    };
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed);
    Layout(&first_, CUDA_R_16BF, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n);
    Layout(&second_, CUDA_R_16BF, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k);
    Layout(&result_, s.wide_c ? CUDA_R_32F : CUDA_R_16BF, s.m, s.n);
    Check(cublasLtMatmulPreferenceCreate(&preference_), "a product");
    const std::uint64_t workspace = kWorkspaceBytes;
    Check(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace),
          "a product");
  }
  ~Description() {
    cublasLtMatmulPreferenceDestroy(preference_);
    for (cublasLtMatrixLayout_t layout : {first_, second_, result_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation_);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  std::vector<cublasLtMatmulAlgo_t> Algorithms(cublasLtHandle_t blas) const {
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
    int found = 0;
    Check(cublasLtMatmulAlgoGetHeuristic(blas, operation_, first_, second_, result_, result_, preference_, kCandidates,
                                         results.data(), &found),
          "the algorithms of a product");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
    return algorithms;
  }

  cublasStatus_t Run(cublasLtHandle_t blas, const cublasLtMatmulAlgo_t& algorithm, const Memory& a, const Memory& b,
                     const Memory& c, const Memory& workspace, cudaStream_t stream) const {
    const float one = 1, zero = 0;
    return cublasLtMatmul(blas, operation_, &one, b.data(), first_, a.data(), second_, &zero, c.data(), result_,
                          c.data(), result_, &algorithm, workspace.data(), kWorkspaceBytes, stream);
  }

 private:
  // The layout of a row-major rows x columns matrix.
  static void Layout(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::size_t rows, std::size_t columns) {
    Check(cublasLtMatrixLayoutCreate(layout, type, columns, rows, static_cast<std::int64_t>(columns)), "a matrix");
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

class CudaLimits : public Limits {
 public:
  explicit CudaLimits(const Timing& timing) : timing_(timing), workspace_(kWorkspaceBytes, "a workspace") {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    Check(cudaEventCreate(&begin_), "an event");
    Check(cudaEventCreate(&end_), "an event");
    Check(cublasLtCreate(&blas_), "cuBLASLt");
  }
  ~CudaLimits() override {
    cublasLtDestroy(blas_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  double CopyBytesPerSecond(std::size_t bytes) override {
    const Memory from(bytes, "a copy"), to(bytes, "a copy");
    Check(cudaMemset(from.data(), 1, bytes), "a copy");
    const auto copy = [&] {
      Check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream_), "a copy");
    };
    return 2 * double(bytes) / Median(copy);
  }

  double HostCopyBytesPerSecond(std::size_t bytes, bool to_host, bool pinned) override {
    const Memory placed(bytes, "a copy");
    const HostMemory host(bytes, pinned);
    const auto copy = [&] {
      if (to_host)
        Check(cudaMemcpyAsync(host.data(), placed.data(), bytes, cudaMemcpyDeviceToHost, stream_), "a copy");
      else
        Check(cudaMemcpyAsync(placed.data(), host.data(), bytes, cudaMemcpyHostToDevice, stream_), "a copy");
    };
    return double(bytes) / Median(copy);
  }

  double ProductSeconds(const ProductShape& shape) override {
    const Memory a(shape.m * shape.k * 2, "A"), b(shape.k * shape.n * 2, "B"), c(shape.m * shape.n * 4, "C");
    FillWithBf16(a, shape.m * shape.k);
    FillWithBf16(b, shape.k * shape.n);
    const Description product(shape);
    const std::vector<cublasLtMatmulAlgo_t> algorithms = product.Algorithms(blas_);
    const cublasLtMatmulAlgo_t* best = nullptr;
    double best_seconds = std::numeric_limits<double>::infinity();
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
      const auto run = [&] { return product.Run(blas_, algorithm, a, b, c, workspace_, stream_); };
      if (run() != CUBLAS_STATUS_SUCCESS) continue;
      const double seconds = Seconds(3, [&] { Check(run(), "a product"); });
      if (seconds < best_seconds) best = &algorithm, best_seconds = seconds;
    }
    if (best == nullptr)
      Die("cuBLASLt has no algorithm for a bf16 product with m = " + std::to_string(shape.m) +
          ", n = " + std::to_string(shape.n) + ", k = " + std::to_string(shape.k));
    return Median([&] { Check(product.Run(blas_, *best, a, b, c, workspace_, stream_), "a product"); });
  }

 private:
  // Seconds per call, measured by the GPU's events; the calls are queued together.
  template <typename Call>
  double Seconds(std::size_t calls, Call call) {
    Check(cudaEventRecord(begin_, stream_), "an event");
    for (std::size_t i = 0; i < calls; ++i) call();
    Check(cudaEventRecord(end_, stream_), "an event");
    Check(cudaEventSynchronize(end_), "the measured operation");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin_, end_), "an event");
    return double(ms) / 1e3 / double(calls);
  }

  // The median over the repetitions of the seconds per call.
  template <typename Call>
  double Median(Call call) {
    const double once = std::max(Seconds(2, call), 1e-6);
    const auto calls = std::size_t(std::clamp(timing_.seconds / double(timing_.repetitions) / once, 1.0, 2000.0));
    std::vector<double> times;
    times.reserve(timing_.repetitions);
    for (std::size_t r = 0; r < timing_.repetitions; ++r) times.push_back(Seconds(calls, call));
    return Quantile(&times, 0.5);
  }

  Timing timing_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  Memory workspace_;
};

}  // namespace

std::unique_ptr<Limits> MakeGpuLimits(const Timing& timing) { return std::make_unique<CudaLimits>(timing); }

}  // namespace tarn::bench
