// How many GPUs this process may use.
#pragma once

namespace tarn::kernels {

// The number of GPUs visible to CUDA (see CUDA_VISIBLE_DEVICES), numbered from 0. 0 without a driver that supports this
// build, and in a build without CUDA; the error of Stream::Make has the reason.
int VisibleGpus();

}  // namespace tarn::kernels
