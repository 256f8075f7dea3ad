#include "worker/client/scheduler_contact.h"

#include <fmt/format.h>

namespace tarn::worker {

Status SchedulerContact::Check(TimeUs now, const std::string& scheduler) const {
  const TimeUs silent = Silence(now);
  if (!joined_ || silent < kLeasesUntilLost * lease_us_) return {};
  return Fail(ErrorCode::kUnavailable, fmt::format("the scheduler at {} has been silent for {:.1f} seconds (a lease "
                                                   "is {:.1f}): it is dead or cannot be reached",
                                                   scheduler, double(silent) * 1e-6, double(lease_us_) * 1e-6));
}

}  // namespace tarn::worker
