// Where a program keeps what it can find out again, such as measurements, from run to run: as the XDG base directory
// specification has it.
#pragma once

#include <string>

namespace tarn {

// $XDG_CACHE_HOME/tarn if that is an absolute path, else ~/.cache/tarn; empty where neither is known. The values of the
// environment are handed in, null where a variable is not set. Need not be there.
inline std::string CacheFolder(const char* xdg_cache_home, const char* home) {
  if (xdg_cache_home != nullptr && xdg_cache_home[0] == '/') return std::string(xdg_cache_home) + "/tarn";
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/tarn";
  return {};
}

}  // namespace tarn
