// Decodes received frames. Invalid messages are counted, logged at most once a second, and answered if possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/message.h"
#include "net/backlog.h"
#include "net/frame.h"
#include "net/transport.h"

namespace tarn::net {

// Not thread-safe.
class Intake {
 public:
  // Sends an answer to an accepted peer, or drops it if it cannot be sent now.
  using Answer = std::function<void(Peer, Frames)>;
  explicit Intake(Answer answer) : answer_(std::move(answer)) {}

  // Appends the messages in `frames` to `out`: one, or those of a bundle. `owner`, if not null, owns the frames.
  void Accept(Peer from, std::span<const FrameView> frames, FrameOwner* owner, std::vector<Received>* out);
  // Refuses a message beyond the limit of frames or bytes, of which `frames` is the beginning. If it has another
  // protocol version, refuses it for that reason instead, as Accept does.
  void RefuseTooLarge(Peer from, std::span<const FrameView> frames, std::vector<Received>* out);
  // Counts and logs a message that is invalid for the reason `error`, and answers it if the peer is an accepted one.
  void Refuse(Peer from, const Error& error, std::span<const FrameView> frames);
  // Counts and logs connections that were closed because they had sent more than `bytes_max` of one message.
  void CountEnded(std::uint64_t connections, std::size_t bytes_max);

  // received_*, refused_malformed, refused_too_large, refused_version.
  void AddTo(TransportCounters* counters) const;

 private:
  void AcceptOne(Peer from, std::span<const FrameView> frames, FrameOwner* owner, std::vector<Received>* out);

  Answer answer_;
  std::uint64_t received_messages_ = 0, received_bytes_ = 0;
  std::uint64_t malformed_ = 0, too_large_ = 0, version_ = 0;
  LogLimiter malformed_limiter_, too_large_limiter_, version_limiter_;
};

}  // namespace tarn::net
