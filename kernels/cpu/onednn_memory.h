// Translates oneDNN's error for exhausted memory. Internal to kernels/cpu.
#pragma once

#include <dnnl.hpp>
#include <new>

namespace tarn::kernels {

// Returns compute(). std::bad_alloc: oneDNN has no memory.
template <typename Function>
auto WithBadAlloc(const Function& compute) {
  try {
    return compute();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw;
  }
}

}  // namespace tarn::kernels
