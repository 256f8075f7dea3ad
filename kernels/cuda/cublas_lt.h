// cuBLASLt is not linked but loaded (kernels/cuda_libraries.h) when the first stream is made: a program starts where it
// is missing, and a bundle may leave its 540 MB to the machine that has it. The functions of <cublasLt.h> that tarn
// calls are defined in cublas_lt.cc and pass on what they are given.
#pragma once

#include "core/error.h"

namespace tarn::kernels {

// Before the first of those functions is called. kUnavailable: it is not here, or lacks one of them; the message says
// where it was looked for. What was found once stays so. Any thread.
Status LoadCublasLt();

}  // namespace tarn::kernels
