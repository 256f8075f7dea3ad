// Shared by the tests of membership/: joins, heartbeats and an outbox with the answers.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/limits.h"
#include "core/message.h"
#include "scheduler/membership/mailer.h"

namespace tarn::scheduler {

inline Join ShardJoin(std::uint32_t rank, std::uint64_t nonce) {
  return {.role = Role::kShard,
          .rank = rank,
          .nonce = nonce,
          .protocol_version = limits::kProtocolVersion,
          .endpoint = "endpoint-" + std::to_string(nonce)};
}

inline Heartbeat ShardBeat(ViewVersion view, Clock clock = Clock(0)) {
  Heartbeat beat;
  beat.view = view;
  beat.clock = clock;
  return beat;
}

// An outbox and a mailer that sends into it.
struct Letters {
  // The last sent message, if it has this kind.
  template <class T>
  const T* Last() const {
    return out.empty() ? nullptr : std::get_if<T>(&out.back().message.body);
  }
  // Clears the sent messages; returns their number.
  std::size_t Clear() { return std::exchange(out, {}).size(); }

  Outbox out;
  Mailer mail{7, &out, Epoch(1)};
};

}  // namespace tarn::scheduler
