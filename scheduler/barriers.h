// Barriers: number n opens once every live worker has entered it or a later one. A barrier does not wait for a worker
// that has ended. A worker that joins later does not wait at barriers that are already open.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "core/message.h"

namespace tarn::scheduler {

class Barriers {
 public:
  // Join and End: the worker becomes live, or has ended.
  void Join(Incarnation worker) { workers_[worker] = {}; }
  void End(Incarnation worker) { workers_.erase(worker); }
  // The worker has entered this barrier and waits for its answer. A repeated call is answered again.
  void Enter(Incarnation worker, std::uint64_t number) {
    State& state = workers_[worker];
    state.entered = std::max(state.entered, number);
    state.waits = number;
  }

  struct Answer {
    Incarnation worker;
    std::uint64_t number = 0;
  };
  // The answers that are due: to each waiting worker whose barrier is open.
  std::vector<Answer> Answers() {
    std::uint64_t entered_by_all = UINT64_MAX;
    for (const auto& [id, state] : workers_) entered_by_all = std::min(entered_by_all, state.entered);
    if (!workers_.empty()) open_ = std::max(open_, entered_by_all);
    std::vector<Answer> answers;
    for (auto& [id, state] : workers_) {
      if (state.waits == 0 || state.waits > open_) continue;
      answers.push_back({id, state.waits});
      state.waits = 0;
    }
    return answers;
  }

 private:
  struct State {
    std::uint64_t entered = 0;  // the highest barrier entered
    std::uint64_t waits = 0;    // the barrier whose answer is due; 0: none
  };
  std::map<Incarnation, State> workers_;
  std::uint64_t open_ = 0;  // barriers up to this number are open
};

}  // namespace tarn::scheduler
