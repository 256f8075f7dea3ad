// Numbers of process starts, counted over the whole run.
#pragma once

#include <utility>

#include "core/types.h"

namespace tarn::scheduler {

class Incarnations {
 public:
  explicit Incarnations(Incarnation first) : next_(first) {}
  Incarnation Take() { return std::exchange(next_, Incarnation(next_.value + 1)); }
  Incarnation next() const { return next_; }

 private:
  Incarnation next_;
};

}  // namespace tarn::scheduler
