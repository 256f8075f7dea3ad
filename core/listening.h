// Since when a node has been listening without a break. One that was not running for a while (its process was stopped,
// its machine slept) could hear nobody meanwhile, and that says nothing of the others: their silence counts from there.
// A plain value; one thread.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/types.h"

namespace tarn {

// For messages of a node that the scheduler does not answer: without the fleet's keys it looks like one that is gone.
inline constexpr std::string_view kSameKeys = "and do both have the same key file (--keys)";

class Listening {
 public:
  void Begin(TimeUs now) { since_ = last_ = now; }
  // The node is running. It says so more often than every `break_us`, or else it was not, in between.
  void Note(TimeUs now, TimeUs break_us) {
    since_ = Since(now, break_us);
    last_ = now;
  }
  // As it is at `now`, before that is noted.
  TimeUs Since(TimeUs now, TimeUs break_us) const { return now - last_ > break_us ? now : since_; }
  TimeUs since() const { return since_; }
  // For how long one that was heard last at `heard` has been silent.
  TimeUs Silence(TimeUs heard, TimeUs now, TimeUs break_us) const {
    return now - std::max(heard, Since(now, break_us));
  }

 private:
  TimeUs since_ = 0, last_ = 0;
};

}  // namespace tarn
