#include "kernels/cuda/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "kernels/cuda_libraries.h"

namespace tarn::kernels {
namespace {

// The version whose header this is compiled with.
#define TARN_TEXT_OF(number) #number
#define TARN_LIBRARY_OF(version) "libcublasLt.so." TARN_TEXT_OF(version)
// A single string in the program, for which tools/bundle searches; otherwise the compiler would assemble it from parts.
[[gnu::used]] constexpr char kLibrary[] = TARN_LIBRARY_OF(CUBLAS_VER_MAJOR);

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
};

// Looks up functions of a library until one is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}
  template <typename F>
  Symbols& Take(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library_, name));
    if (*function == nullptr && missing_ == nullptr) missing_ = name;
    return *this;
  }
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

// The name of a missing function; empty if the library has all.
std::string TakeFunctions(void* library, Functions* f) {
  Symbols symbols(library);
  symbols.Take("cublasLtCreate", &f->create)
      .Take("cublasLtDestroy", &f->destroy)
      .Take("cublasLtGetVersion", &f->get_version)
      .Take("cublasLtGetStatusString", &f->get_status_string)
      .Take("cublasLtMatmul", &f->matmul)
      .Take("cublasLtMatmulAlgoCheck", &f->algo_check)
      .Take("cublasLtMatmulAlgoGetHeuristic", &f->algo_get_heuristic)
      .Take("cublasLtMatmulDescCreate", &f->desc_create)
      .Take("cublasLtMatmulDescDestroy", &f->desc_destroy)
      .Take("cublasLtMatmulDescSetAttribute", &f->desc_set_attribute)
      .Take("cublasLtMatmulPreferenceCreate", &f->preference_create)
      .Take("cublasLtMatmulPreferenceDestroy", &f->preference_destroy)
      .Take("cublasLtMatmulPreferenceSetAttribute", &f->preference_set_attribute)
      .Take("cublasLtMatrixLayoutCreate", &f->layout_create)
      .Take("cublasLtMatrixLayoutDestroy", &f->layout_destroy);
  return symbols.missing() == nullptr ? "" : symbols.missing();
}

Expected<Functions> Load() {
  Functions functions;
  const auto library =
      LoadCudaLibrary(kLibrary, CudaLibraryFolders(), [&](void* handle) { return TakeFunctions(handle, &functions); });
  if (!library) return std::unexpected(library.error());
  return functions;
}

const Expected<Functions>& Loaded() {
  static const Expected<Functions> loaded = Load();
  return loaded;
}

const Functions& Lt() {
  TARN_CHECK(Loaded().has_value(), "cuBLASLt was loaded before");
  return *Loaded();
}

}  // namespace

Status LoadCublasLt() {
  if (!Loaded()) return std::unexpected(Loaded().error());
  return {};
}

}  // namespace tarn::kernels

using tarn::kernels::Lt;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return Lt().create(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Lt().destroy(handle); }
std::size_t cublasLtGetVersion() { return Lt().get_version(); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return Lt().get_status_string(status); }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  return Lt().matmul(handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                     workspace, workspace_bytes, stream);
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return Lt().algo_check(handle, operation, a, b, c, d, algorithm, result);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int results_max,
                                              cublasLtMatmulHeuristicResult_t* results, int* n_results) {
  return Lt().algo_get_heuristic(handle, operation, a, b, c, d, preference, results_max, results, n_results);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return Lt().desc_create(operation, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) { return Lt().desc_destroy(operation); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return Lt().desc_set_attribute(operation, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Lt().preference_create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Lt().preference_destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return Lt().preference_set_attribute(preference, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  return Lt().layout_create(layout, type, rows, columns, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return Lt().layout_destroy(layout); }
