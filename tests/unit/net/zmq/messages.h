// Messages that tests can tell apart.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/message.h"
#include "net/transport.h"

namespace tarn::net {

inline Message NumberedTick(std::uint64_t n) {
  Message message;
  message.body = Tick{.clock = Clock(n)};
  return message;
}

// A push of `bytes` of values whose first word is `n`.
inline Message Piece(std::uint64_t n, std::size_t bytes) {
  Message message;
  message.body = PullReply{.request = RequestId(n), .count = 1024};
  message.values = Buffer::Allocate(bytes);
  std::memset(message.values.data(), static_cast<int>(n & 0xff), bytes);
  return message;
}

inline std::uint64_t TickOf(const Received& r) { return std::get<Tick>(r.message.body).clock.value; }

}  // namespace tarn::net
