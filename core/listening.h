// The time since which a node has been running without a pause. A node that did not run for a while (its process was
// stopped, its machine slept) received no messages, which is no evidence that other nodes are dead: their silence
// counts from the end of the pause. A plain value; one thread.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/types.h"

namespace tarn {

// Part of the question in error messages about a scheduler that does not answer: a node whose keys differ from the
// scheduler's gets no answer either.
inline constexpr std::string_view kSameKeys = "and do both have the same key file (--keys)";

class Listening {
 public:
  void Begin(TimeUs now) { since_ = last_ = now; }
  // Notes that the node is running. Call it at least every `break_us`: a longer gap counts as a pause.
  void Note(TimeUs now, TimeUs break_us) {
    since_ = Since(now, break_us);
    last_ = now;
  }
  // The value that since() would have after Note(now).
  TimeUs Since(TimeUs now, TimeUs break_us) const { return now - last_ > break_us ? now : since_; }
  TimeUs since() const { return since_; }
  // The silence of a node whose last message arrived at `last_message`.
  TimeUs Silence(TimeUs last_message, TimeUs now, TimeUs break_us) const {
    return now - std::max(last_message, Since(now, break_us));
  }

 private:
  TimeUs since_ = 0, last_ = 0;
};

}  // namespace tarn
