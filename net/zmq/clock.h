// The monotonic time of the transport's deadlines, with an arbitrary origin.
#pragma once

#include <chrono>

#include "core/types.h"

namespace tarn::net {

inline TimeUs NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace tarn::net
