#include "core/batch_scheduling.h"

#include <sched.h>

namespace tarn {

void UseBatchScheduling() {
  const sched_param none{};
  if (sched_getscheduler(0) == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace tarn
