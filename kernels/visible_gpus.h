// How many GPUs this process may use.
#pragma once

namespace tarn::kernels {

// Those that CUDA shows (CUDA_VISIBLE_DEVICES chooses), numbered from 0; 0 without a driver that serves this build, and
// in a build without CUDA. Stream::Make says why.
int VisibleGpus();

}  // namespace tarn::kernels
