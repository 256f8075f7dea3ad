// The cache directory of a program, for data that can be recomputed, such as measurements. Follows the XDG base
// directory specification.
#pragma once

#include <string>

namespace tarn {

// $XDG_CACHE_HOME/tarn if that is an absolute path, else ~/.cache/tarn; empty if neither is known. The caller passes
// the values of the environment variables, null if not set. The directory need not exist.
inline std::string CacheFolder(const char* xdg_cache_home, const char* home) {
  if (xdg_cache_home != nullptr && xdg_cache_home[0] == '/') return std::string(xdg_cache_home) + "/tarn";
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/tarn";
  return {};
}

}  // namespace tarn
