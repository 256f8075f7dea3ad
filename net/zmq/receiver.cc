#include "net/zmq/receiver.h"

#include <algorithm>
#include <array>

#include "net/accepted_peers.h"
#include "net/zmq/clock.h"

namespace tarn::net {
namespace {

// Messages received from one socket before the next has its turn.
constexpr std::size_t kTurn = 32;
// One in this many messages is reserved for sockets, even if shared memory has more.
constexpr std::size_t kShareOfSockets = 4;

// The frames of a ZeroMQ message after its identity, if it has one.
class OwnedParts final : public FrameOwner {
 public:
  OwnedParts(Parts* parts, std::size_t skip) : parts_(parts), skip_(skip) {}
  Buffer Take(std::size_t frame) override { return parts_->Take(skip_ + frame); }

 private:
  Parts* parts_;
  std::size_t skip_;
};

}  // namespace

void Receiver::Drain(std::size_t budget, std::vector<Received>* out) {
  std::size_t of_memory = budget - budget / kShareOfSockets;
  budget -= of_memory;
  DrainShm(&of_memory, out);
  DrainSockets(budget + of_memory, out);
}

void Receiver::DrainShm(std::size_t* budget, std::vector<Received>* out) {
  shm_may_hold_ = shm_->Drain(budget, [&](Peer from, ShmFrames* frames) {
    if (IsAccepted(from)) router_->Touch(from);
    intake_->Accept(from, frames->views(), frames, out);
    if (shm_->has_unidentified() && !out->empty() && out->back().from == from)
      shm_->Identify(from, out->back().message.sender);
  });
}

void Receiver::DrainSockets(std::size_t budget, std::vector<Received>* out) {
  ready_.clear();
  if (router_->MayHold()) ready_.push_back({router_->socket(), Peer()});
  links_->ForEach([&](const LaneId& id, PolledSocket& socket) {
    if (socket.may_hold) ready_.push_back({&socket, id.peer});
  });
  if (ready_.empty()) return;
  std::rotate(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(turn_++ % ready_.size()), ready_.end());
  while (!ready_.empty() && budget > 0)
    std::erase_if(ready_, [&](const Ready& ready) { return !TakeTurn(ready, out, &budget); });
}

bool Receiver::TakeTurn(const Ready& ready, std::vector<Received>* out, std::size_t* budget) {
  for (std::size_t i = 0; i < kTurn && *budget > 0; ++i, --*budget) {
    if (!ready.socket->Receive(&parts_)) return false;
    Accept(ready, out);
  }
  return true;
}

void Receiver::Accept(const Ready& ready, std::vector<Received>* out) {
  const bool by_router = ready.socket == router_->socket();
  const std::size_t skip = by_router ? 1 : 0;
  const Peer from = by_router ? router_->SenderOf(&parts_) : ready.peer;
  std::array<FrameView, Parts::kMax> frames;
  for (std::size_t i = skip; i < parts_.count(); ++i) frames[i - skip] = parts_[i];
  const std::span<const FrameView> all(frames.data(), parts_.count() - skip);
  OwnedParts owner(&parts_, skip);
  if (parts_.too_large())
    intake_->RefuseTooLarge(from, all, out);
  else if (!AcceptHandshake(from, all))
    intake_->Accept(from, all, &owner, out);
  parts_.Clear();
}

bool Receiver::AcceptHandshake(Peer from, std::span<const FrameView> frames) {
  if (frames.size() != 1) return false;
  const auto handshake = DecodeShmHandshake(frames[0]);
  if (!handshake) return false;
  if (*handshake)
    shm_->OnHandshake(from, **handshake, NowUs());
  else
    intake_->Refuse(from, handshake->error(), frames);
  return true;
}

}  // namespace tarn::net
