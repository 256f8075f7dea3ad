// Emulates cuBLASLt: column-major products with their epilogues, in plain loops. A violated requirement ends the
// program; the real library does not always detect it. Like the real library, the emulation rejects unsupported
// products, and some algorithms only when they run.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/cublas_lt.h"
#include "tests/emulated/internal.h"

namespace emulated {

struct Blas {};
struct MatmulDesc {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
};
struct MatrixLayout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = 3, a = 256, b = 256, c = 256, d = 256;
};

namespace {

constexpr std::uint64_t kMagic = 0x6c74, kWorkspaceOfSecond = 1 << 20;

std::size_t BytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

// Bits of an epilogue: 2 ReLU, 4 bias, 8 gradient of ReLU, 16 bias gradient of D, 128 mask, 512 bias gradient of B.
bool Has(cublasLtEpilogue_t e, int bit) { return (static_cast<int>(e) & bit) != 0; }
bool IsGradient(cublasLtEpilogue_t e) { return Has(e, 8) || Has(e, 512); }

struct Shape {
  std::uint64_t m, n, k;
};

// The shape of a product. Ends the program if the matrices do not fit each other.
Shape ShapeOf(const MatmulDesc& op, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
              const MatrixLayout& d) {
  const auto rows = [](const MatrixLayout& l, cublasOperation_t o) { return o == CUBLAS_OP_N ? l.rows : l.columns; };
  const auto columns = [](const MatrixLayout& l, cublasOperation_t o) { return o == CUBLAS_OP_N ? l.columns : l.rows; };
  const Shape s{d.rows, d.columns, columns(a, op.a)};
  if (rows(a, op.a) != s.m || rows(b, op.b) != s.k || columns(b, op.b) != s.n || c.rows != s.m || c.columns != s.n)
    Violation("cuBLASLt: the matrices' extents do not fit each other");
  for (const MatrixLayout* l : {&a, &b, &c, &d})
    if (l->stride < static_cast<std::int64_t>(l->rows))
      Violation("cuBLASLt: a leading dimension is less than the rows");
  if (a.type != b.type || c.type != d.type) Violation("cuBLASLt: A and B, or C and D, have different types");
  if (a.type == CUDA_R_32F && d.type != CUDA_R_32F) Violation("cuBLASLt: factors are wider than the result");
  if (a.type != CUDA_R_32F && d.type != CUDA_R_32F && a.type != d.type)
    Violation("cuBLASLt: factors and result have different 16-bit types");
  if (a.type != CUDA_R_32F && op.compute != CUBLAS_COMPUTE_32F) Violation("cuBLASLt: 16 bits with tf32");
  if (Has(op.epilogue, 128)) {
    if (op.aux == nullptr) Violation("cuBLASLt: the epilogue needs a mask, but its address is null");
    if (op.aux_stride % 128 != 0) Violation("cuBLASLt: the mask's leading dimension is not a multiple of 128");
    if (op.aux_stride < static_cast<std::int64_t>(s.m))
      Violation("cuBLASLt: the mask's leading dimension is less than the rows");
    if (reinterpret_cast<std::uintptr_t>(op.aux) % 16 != 0) Violation("cuBLASLt: the mask is not aligned to 16 bytes");
  }
  if (Has(op.epilogue, 4 | 16 | 512)) {
    if (op.bias == nullptr) Violation("cuBLASLt: the epilogue needs a bias, but its address is null");
    if (reinterpret_cast<std::uintptr_t>(op.bias) % 16 != 0) Violation("cuBLASLt: the bias is not aligned to 16 bytes");
  }
  return s;
}

// Whether the emulated library has a kernel for the product.
bool Supported(const MatmulDesc& op, const Shape& s) {
  if (s.m == 0 || s.n == 0 || s.k == 0) return false;
  return !(IsGradient(op.epilogue) && s.k == 1) && !(Has(op.epilogue, 512) && s.n == 1);
}

// A hash of the product, which its algorithms contain.
std::uint64_t NumberOf(const MatmulDesc& op, const Shape& s) {
  std::uint64_t x =
      s.m * 1000003 + s.n * 10007 + s.k * 101 + static_cast<std::uint64_t>(op.epilogue) * 7 + op.a * 2 + op.b;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  return x ^ x >> 27;
}

float Load(const void* data, cudaDataType type, std::uint64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == CUDA_R_16BF ? __bfloat162float({bits}) : FloatOf(bits);
}
void Store(void* data, cudaDataType type, std::uint64_t i, float v) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = v;
  else
    static_cast<std::uint16_t*>(data)[i] = type == CUDA_R_16BF ? __float2bfloat16_rn(v).bits : HalfOf(v);
}

std::size_t Extent(const MatrixLayout& l) {
  return ((l.columns - 1) * static_cast<std::uint64_t>(l.stride) + l.rows) * BytesOf(l.type);
}

struct Call {
  MatmulDesc op;
  MatrixLayout a, b, c, d;
  Shape s;
  float alpha, beta;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  std::size_t workspace_bytes;
};

// The columns of op(X) one after the other, `rows` numbers each.
std::vector<float> Unpacked(const void* data, const MatrixLayout& l, cublasOperation_t op) {
  const std::uint64_t rows = op == CUBLAS_OP_N ? l.rows : l.columns, columns = op == CUBLAS_OP_N ? l.columns : l.rows;
  std::vector<float> out(rows * columns);
  for (std::uint64_t j = 0; j < columns; ++j)
    for (std::uint64_t i = 0; i < rows; ++i) {
      const auto stride = static_cast<std::uint64_t>(l.stride);
      out[j * rows + i] = Load(data, l.type, op == CUBLAS_OP_N ? j * stride + i : i * stride + j);
    }
  return out;
}

void Compute(const Call& call) {
  const auto& [m, n, k] = call.s;
  constexpr const char* kWho = "cuBLASLt";
  CheckDevice(call.a_data, Extent(call.a), false, kWho);
  CheckDevice(call.b_data, Extent(call.b), false, kWho);
  if (call.beta != 0) CheckDevice(call.c_data, Extent(call.c), false, kWho);
  CheckDevice(call.d_data, Extent(call.d), true, kWho);
  if (call.workspace_bytes != 0) {
    CheckDevice(call.workspace, call.workspace_bytes, true, kWho);
    std::memset(call.workspace, 0xee, std::min<std::size_t>(call.workspace_bytes, 4096));  // as cuBLASLt may
  }
  const int e = call.op.epilogue;
  const cudaDataType bias_type = call.d.type;
  const std::size_t bias_bytes = ((e & 512) != 0 ? n : m) * BytesOf(bias_type);
  if (e & (4 | 16 | 512)) CheckDevice(call.op.bias, bias_bytes, (e & (16 | 512)) != 0, kWho);
  const auto mask_stride = static_cast<std::uint64_t>(call.op.aux_stride) / 32;
  auto* const mask = static_cast<std::uint32_t*>(call.op.aux);
  if (e & 128) CheckDevice(mask, (n - 1) * mask_stride * 4 + (m + 31) / 32 * 4, (e & 2) != 0, kWho);
  const std::vector<float> a = Unpacked(call.a_data, call.a, call.op.a), b = Unpacked(call.b_data, call.b, call.op.b);
  std::vector<float> column(m), sums(m);
  for (std::uint64_t j = 0; j < n; ++j) {
    std::ranges::fill(column, 0.0f);
    for (std::uint64_t l = 0; l < k; ++l) {
      const float factor = b[j * k + l];
      const float* const of_a = a.data() + l * m;
      for (std::uint64_t i = 0; i < m; ++i) column[i] += factor * of_a[i];
    }
    for (std::uint64_t i = 0; i < m; ++i) {
      const std::uint64_t at = j * static_cast<std::uint64_t>(call.d.stride) + i;
      float v = call.alpha * column[i];
      if (call.beta != 0)
        v += call.beta * Load(call.c_data, call.c.type, j * static_cast<std::uint64_t>(call.c.stride) + i);
      if (e & 4) v += Load(call.op.bias, bias_type, i);
      if (e & 2) v = v > 0 ? v : 0.0f;
      const std::uint64_t word = j * mask_stride + i / 32;
      const std::uint32_t bit = std::uint32_t{1} << (i % 32);
      if ((e & 128) && (e & 2)) mask[word] = v > 0 ? mask[word] | bit : mask[word] & ~bit;
      if ((e & 8) && (mask[word] & bit) == 0) v = 0;
      sums[i] += v;
      Store(call.d_data, call.d.type, at, v);
    }
  }
  for (std::uint64_t i = 0; (e & 16) && i < m; ++i) Store(call.op.bias, bias_type, i, sums[i]);
  for (std::uint64_t j = 0; (e & 512) && j < n; ++j) {
    float sum = 0;
    for (std::uint64_t l = 0; l < k; ++l) sum += b[j * k + l];
    Store(call.op.bias, bias_type, j, sum);
  }
}

}  // namespace
}  // namespace emulated

using namespace emulated;

namespace tarn::kernels {
Status LoadCublasLt() { return {}; }
}  // namespace tarn::kernels

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new Blas;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    default: return "an error of the emulated cuBLASLt";
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Shape s = ShapeOf(*operation, *a_layout, *b_layout, *c_layout, *d_layout);
  const auto [magic, number, alignment, needed, refuses, r0, r1, r2] = algorithm->data;
  if (magic != kMagic || number != NumberOf(*operation, s)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Supported(*operation, s) || refuses != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const void* p : {a, b, c, static_cast<const void*>(d)})
    if (reinterpret_cast<std::uintptr_t>(p) % alignment != 0)
      Violation("cuBLASLt: a matrix is not aligned as the algorithm requires");
  if (needed > workspace_bytes) Violation("cuBLASLt: the workspace is smaller than the algorithm needs");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0) Violation("cuBLASLt: the workspace is not aligned");
  Call call{*operation,
            *a_layout,
            *b_layout,
            *c_layout,
            *d_layout,
            s,
            *static_cast<const float*>(alpha),
            *static_cast<const float*>(beta),
            a,
            b,
            c,
            d,
            workspace,
            needed};
  const cudaError_t given = Enqueue("a product", stream, [call] { Compute(call); });
  return given == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  const Shape s = ShapeOf(*operation, *a, *b, *c, *d);
  if (algorithm->data[0] != kMagic || algorithm->data[1] != NumberOf(*operation, s)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Supported(*operation, s)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {*algorithm, algorithm->data[3], CUBLAS_STATUS_SUCCESS, 1.0f, {}};
  return CUBLAS_STATUS_SUCCESS;
}

// For one in four products the first algorithm is rejected when it runs.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int results_max,
                                              cublasLtMatmulHeuristicResult_t* results, int* n_results) {
  *n_results = 0;
  const Shape s = ShapeOf(*operation, *a, *b, *c, *d);
  if (!Supported(*operation, s)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const std::uint64_t number = NumberOf(*operation, s);
  const std::uint64_t alignment = std::min({preference->a, preference->b, preference->c, preference->d});
  if (number % 4 == 0 && *n_results < results_max)
    results[(*n_results)++] = {{{kMagic, number, alignment, 0, 1}}, 0, CUBLAS_STATUS_SUCCESS, 1.0f, {}};
  for (const std::uint64_t needed : {std::uint64_t{0}, kWorkspaceOfSecond})
    if (needed <= preference->workspace && *n_results < results_max)
      results[(*n_results)++] = {{{kMagic, number, alignment, needed, 0}}, needed, CUBLAS_STATUS_SUCCESS, 1.0f, {}};
  return *n_results == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *operation = new MatmulDesc{.compute = compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  const auto set = [&](auto* to) {
    if (bytes != sizeof *to) Violation("cuBLASLt: an attribute has the wrong size");
    std::memcpy(static_cast<void*>(to), value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&operation->a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&operation->b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&operation->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&operation->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(&operation->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(&operation->aux_stride);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new Preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  const auto set = [&](auto* to) {
    if (bytes != sizeof *to) Violation("cuBLASLt: an attribute has the wrong size");
    std::memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&preference->schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&preference->a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&preference->b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&preference->c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&preference->d);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  *layout = new MatrixLayout{type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
