// Barriers: number n opens once every live worker has entered it. A worker that dies delays no barrier; for one that
// joins, earlier barriers are open.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "core/message.h"

namespace tarn::scheduler {

class Barriers {
 public:
  void Join(Incarnation worker) { workers_[worker] = {}; }
  void End(Incarnation worker) { workers_.erase(worker); }
  void Enter(Incarnation worker, std::uint64_t number) {
    State& state = workers_[worker];
    state.entered = std::max(state.entered, number);
    state.waits = number;
  }

  struct Answer {
    Incarnation worker;
    std::uint64_t number = 0;
  };
  // Answers to the workers that may pass, one for each request.
  std::vector<Answer> Answers() {
    std::uint64_t everybody = UINT64_MAX;
    for (const auto& [id, state] : workers_) everybody = std::min(everybody, state.entered);
    if (!workers_.empty()) open_ = std::max(open_, everybody);
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
    std::uint64_t entered = 0, waits = 0;
  };
  std::map<Incarnation, State> workers_;
  std::uint64_t open_ = 0;
};

}  // namespace tarn::scheduler
