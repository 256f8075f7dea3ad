// Where the programs of a user keep which algorithms of a GPU's matrix products are the fastest
// (kernels/gemm_algorithms.h): one file for all of them, so that each measures what no other has measured.
#pragma once

#include <string>

#include "core/cache_folder.h"

namespace tarn::worker {

// In the cache folder, or in `folder` where the environment names none; empty, for nothing is kept, where there is
// neither. The values of the environment are handed in as CacheFolder takes them.
inline std::string AlgorithmsFile(const char* xdg_cache_home, const char* home, const std::string& folder) {
  const std::string cache = CacheFolder(xdg_cache_home, home);
  const std::string& in = cache.empty() ? folder : cache;
  return in.empty() ? in : in + "/gemm-algorithms";
}

}  // namespace tarn::worker
