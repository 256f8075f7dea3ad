#include "core/batch_scheduling.h"

#include <sched.h>

namespace tarn {

bool UseBatchScheduling() {
  const sched_param none{};
  return sched_getscheduler(0) != SCHED_OTHER || sched_setscheduler(0, SCHED_BATCH, &none) == 0;
}

}  // namespace tarn
