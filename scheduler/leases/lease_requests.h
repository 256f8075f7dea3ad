// The LeaseRequests of workers by number: each waits until it can be answered; a repeated one gets the same reply.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/message.h"

namespace tarn::scheduler {

class LeaseRequests {
 public:
  struct Waiting {
    std::uint64_t number = 0;
    std::uint32_t want = 0;
  };

  // Adds a request. Returns the reply if this number is already answered; older numbers are ignored. A new request
  // replaces the waiting one.
  std::optional<LeaseReply> Ask(Incarnation worker, std::uint64_t number, std::uint32_t want) {
    State& state = states_[worker];
    if (number != 0 && number == state.last.number) return state.last;
    if (number > state.last.number) state.waiting = Waiting{number, want};
    return std::nullopt;
  }

  // The waiting requests, by incarnation.
  std::map<Incarnation, Waiting> waiting() const {
    std::map<Incarnation, Waiting> all;
    for (const auto& [worker, state] : states_)
      if (state.waiting) all[worker] = *state.waiting;
    return all;
  }

  // Answers the waiting request; sets the reply's number.
  const LeaseReply& Answer(Incarnation worker, LeaseReply reply) {
    State& state = states_[worker];
    reply.number = state.waiting->number;
    state.waiting.reset();
    state.last = std::move(reply);
    return state.last;
  }

  void End(Incarnation worker) { states_.erase(worker); }

 private:
  struct State {
    LeaseReply last;  // number 0: none yet
    std::optional<Waiting> waiting;
  };
  std::map<Incarnation, State> states_;
};

}  // namespace tarn::scheduler
