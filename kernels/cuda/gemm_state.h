// A stream's plans of matrix products. Internal to kernels/cuda.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/native.h"
#include "kernels/gemm_algorithms.h"

namespace tarn::kernels {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* p) const {
    kDestroy(p);
  }
};
using LtOperation = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroyer<cublasLtMatmulDescDestroy>>;
using LtLayout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroyer<cublasLtMatrixLayoutDestroy>>;

// When a plan's algorithm is measured. A product that occurs once, such as the last batch of a file, is not.
enum class MeasureAt : std::uint8_t {
  kNever,      // it has been measured, or measuring is off
  kSecondUse,  // at the product's second occurrence
  kNextUse,    // at the next run: a recording was abandoned because the product was not measured
};

// How a product is computed. The layouts are of the product's a, b and c; cuBLASLt gets b first.
struct GemmPlan {
  LtOperation operation;
  LtLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  bool fused = false;  // the epilogue
  // The algorithm is cuBLASLt's estimate, not measured; `others` are those that it expects to be slower, the fastest
  // last.
  bool expected = false;
  std::vector<cublasLtMatmulAlgo_t> others;
  // Address of the second factor at the product's first occurrence, and the version of the stream's memory then.
  struct FirstUse {
    const void* b = nullptr;
    std::uint64_t memory_version = 0;
  };
  MeasureAt measure_at = MeasureAt::kNever;
  FirstUse first_use;
};

struct GemmState {
  explicit GemmState(Stream::Native* of) : stream(*of) {}
  ~GemmState() {
    if (factors != nullptr) stream.Release(factors);
  }
  GemmState(const GemmState&) = delete;
  GemmState& operator=(const GemmState&) = delete;

  static constexpr std::size_t kPlansMax = 1024;  // beyond it, all plans are dropped

  Stream::Native& stream;
  std::map<GemmKey, GemmPlan> plans;
  GemmAlgorithms* algorithms = nullptr;
  void* factors = nullptr;  // rounded to 16 bits, of the current product
  std::size_t factor_bytes = 0;
};

// The plan of a product, made if it does not exist. No extent is 0; `b` is the second factor before rounding. Null,
// after Note of the error, if cuBLASLt has no algorithm, or if the plan would have to be made or measured while work is
// recorded. Valid until the next call.
GemmPlan* PlanOf(Stream::Native& native, const Product& product, const void* b);

// Runs the product as planned, with its epilogue. If cuBLASLt rejects the plan, its next algorithm is tried; if there
// is none, the plan is dropped and Note gets the error.
void RunPlan(Stream::Native& native, GemmPlan* plan, const Product& product);

// The epilogue as separate passes over C, which holds the product.
cudaError_t RunEpilogue(const Stream::Native& native, const Product& product);

}  // namespace tarn::kernels
