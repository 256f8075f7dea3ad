#include "sim/event_queue.h"

#include <algorithm>
#include <utility>

namespace tarn::sim {

void EventQueue::At(Time time, std::function<void()> run) {
  events_.push({std::max(time, now_), next_order_++, std::move(run)});
}

bool EventQueue::RunOne() {
  if (events_.empty()) return false;
  Event event = std::move(const_cast<Event&>(events_.top()));  // moved out before pop
  events_.pop();
  now_ = event.time;
  ++executed_;
  event.run();
  return true;
}

}  // namespace tarn::sim
