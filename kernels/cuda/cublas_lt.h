// cuBLASLt is not linked but loaded (kernels/cuda_libraries.h) when the first stream is made. So programs start on
// machines without it, and a bundle need not include its 540 MB. cublas_lt.cc defines the functions of <cublasLt.h>
// that tarn uses; they forward their arguments.
#pragma once

#include "core/error.h"

namespace tarn::kernels {

// Must be called before the first of those functions. kUnavailable: no library has them all; the message lists the
// places searched. Once loaded, it stays loaded. Any thread.
Status LoadCublasLt();

}  // namespace tarn::kernels
