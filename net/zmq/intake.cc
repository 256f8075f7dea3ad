#include "net/zmq/intake.h"

#include <fmt/format.h>

#include "core/limits.h"
#include "net/accepted_peers.h"

namespace tarn::net {
namespace {

std::size_t BytesOf(std::span<const FrameView> frames) {
  std::size_t bytes = 0;
  for (const FrameView& frame : frames) bytes += frame.size;
  return bytes;
}

// The message that the node receives in place of one of another protocol version, which cannot be decoded (N1).
Message VersionMismatch(const FrameView& first) {
  Message message;
  message.sender.role = Role::kScheduler;
  message.body = Shutdown{ErrorCode::kWrongJob, fmt::format("this node speaks protocol {}, the fleet {}",
                                                            limits::kProtocolVersion, VersionOf(first).value_or(0))};
  return message;
}

}  // namespace

void Intake::Accept(Peer from, std::span<const FrameView> frames, FrameOwner* owner, std::vector<Received>* out) {
  if (frames.size() != 1 || !IsBundle(frames[0])) return AcceptOne(from, frames, owner, out);
  const auto bundle = SplitBundle(frames[0]);
  if (!bundle) return Refuse(from, bundle.error(), frames);
  received_bytes_ += frames[0].size;
  for (const FrameView& message : bundle->views()) {
    received_bytes_ -= message.size;
    AcceptOne(from, {&message, 1}, nullptr, out);
  }
}

void Intake::AcceptOne(Peer from, std::span<const FrameView> frames, FrameOwner* owner, std::vector<Received>* out) {
  Expected<Message> message = Decode(frames, owner);
  if (message) {
    ++received_messages_;
    received_bytes_ += BytesOf(frames);
    Received& received = out->emplace_back();
    received.from = from;
    received.message = std::move(*message);
    return;
  }
  Refuse(from, message.error(), frames);
  if (message.error().code == ErrorCode::kWrongJob && !IsAccepted(from))
    out->push_back({from, VersionMismatch(frames[0])});
}

void Intake::RefuseTooLarge(Peer from, std::span<const FrameView> frames, std::vector<Received>* out) {
  const auto version = frames.empty() ? std::nullopt : VersionOf(frames[0]);
  if (version.value_or(limits::kProtocolVersion) != limits::kProtocolVersion)
    return AcceptOne(from, frames, nullptr, out);
  Refuse(from,
         {ErrorCode::kTooLarge,
          fmt::format("message: more than {} frames or {} bytes", limits::kFramesMax, limits::kMessageBytesMax)},
         frames);
}

void Intake::Refuse(Peer from, const Error& error, std::span<const FrameView> frames) {
  LogLimiter* limiter = &malformed_limiter_;
  if (error.code == ErrorCode::kTooLarge) {
    ++too_large_;
    limiter = &too_large_limiter_;
  } else if (error.code == ErrorCode::kWrongJob) {
    ++version_;
    limiter = &version_limiter_;
  } else {
    ++malformed_;
  }
  LogWarning(*limiter, "refused {} bytes from peer {}: {}", BytesOf(frames), from.value, ToString(error));
  // Messages from peers to which this node connected are replies, or come from its scheduler, and are not answered. A
  // peer of another version reads this node's version in the prefix of the answer.
  if (!IsAccepted(from)) return;
  Message reply;
  reply.body = ErrorReply{.code = error.code == ErrorCode::kWrongJob ? ErrorCode::kWrongJob : ErrorCode::kMalformed,
                          .message = error.message};
  Expected<Frames> answer = Encode(reply);
  if (answer) answer_(from, std::move(*answer));
}

void Intake::CountEnded(std::uint64_t connections, std::size_t bytes_max) {
  too_large_ += connections;
  LogWarning(too_large_limiter_, "closed {} connections that had sent more than {} MiB of one message", connections,
             bytes_max >> 20);
}

void Intake::AddTo(TransportCounters* counters) const {
  counters->received_messages += received_messages_;
  counters->received_bytes += received_bytes_;
  counters->refused_malformed += malformed_;
  counters->refused_too_large += too_large_;
  counters->refused_version += version_;
}

}  // namespace tarn::net
