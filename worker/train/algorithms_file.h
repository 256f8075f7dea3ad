// The file with the fastest algorithms of a GPU's matrix products (kernels/gemm_algorithms.h), shared by all programs
// of a user, so that each product is measured only once.
#pragma once

#include <string>

#include "core/cache_folder.h"

namespace tarn::worker {

// Its path: in the cache directory, or in `folder` if the environment does not define one; empty (no file) if both are
// missing. The arguments are those of CacheFolder.
inline std::string AlgorithmsFile(const char* xdg_cache_home, const char* home, const std::string& folder) {
  const std::string cache = CacheFolder(xdg_cache_home, home);
  const std::string& in = cache.empty() ? folder : cache;
  return in.empty() ? in : in + "/gemm-algorithms";
}

}  // namespace tarn::worker
