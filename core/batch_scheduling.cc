#include "core/batch_scheduling.h"

#include <sched.h>

namespace tarn {

bool UseBatchScheduling() {
  const int policy = sched_getscheduler(0);
  if (policy != SCHED_OTHER) return policy >= 0;
  const sched_param none{};
  return sched_setscheduler(0, SCHED_BATCH, &none) == 0;
}

}  // namespace tarn
