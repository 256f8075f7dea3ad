// Messages that tests can tell apart.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/message.h"
#include "net/transport.h"

namespace tarn::net {

inline Message NumberedTick(std::uint64_t n) {
  Message message;
  message.body = Tick{.clock = Clock(n)};
  return message;
}

// Reply `n`, with `bytes` of values that are all the low byte of `n`.
inline Message Piece(std::uint64_t n, std::size_t bytes) {
  ReplyPart part{.count = 1024, .values = Buffer::Allocate(bytes)};
  std::memset(part.values.data(), static_cast<int>(n & 0xff), bytes);
  Message message;
  message.body = PullReply{.request = RequestId(n), .tables = {std::move(part)}};
  return message;
}

inline const Buffer& ValuesOf(const Received& r) { return std::get<PullReply>(r.message.body).tables.front().values; }
inline std::uint64_t TickOf(const Received& r) { return std::get<Tick>(r.message.body).clock.value; }

}  // namespace tarn::net
