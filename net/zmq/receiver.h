// Receives messages from shared memory and sockets, and passes them to an Intake.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/message.h"
#include "net/frame.h"
#include "net/shm_peers.h"
#include "net/transport.h"
#include "net/zmq/intake.h"
#include "net/zmq/links.h"
#include "net/zmq/polled_socket.h"
#include "net/zmq/router.h"
#include "net/zmq/socket.h"

namespace tarn::net {

// Owned by the thread of the objects that it uses; they outlive it.
class Receiver {
 public:
  Receiver(Router* router, ZmqLinks* links, ShmPeers* shm, Intake* intake)
      : router_(router), links_(links), shm_(shm), intake_(intake) {}

  // Receives up to `budget` messages or bundles, valid or not: first from shared memory, which gets at most 3/4 of the
  // budget, then in turns from the sockets that may have some.
  void Drain(std::size_t budget, std::vector<Received>* out);

  // Whether messages may wait that poll does not report: in shared memory that the last Drain did not empty, or in a
  // socket that was not found empty.
  bool MayHold() const { return shm_may_hold_ || router_->MayHold() || links_->AnyMayHaveMessages(); }

 private:
  struct Ready {
    PolledSocket* socket;
    Peer peer;  // the peer that it connects to; none for the ROUTER
  };

  void DrainShm(std::size_t* budget, std::vector<Received>* out);
  void DrainSockets(std::size_t budget, std::vector<Received>* out);
  // Whether the socket may have more.
  bool TakeTurn(const Ready& ready, std::vector<Received>* out, std::size_t* budget);
  void Accept(const Ready& ready, std::vector<Received>* out);
  // Handles messages that set up shared memory. False: another message.
  bool AcceptHandshake(Peer from, std::span<const FrameView> frames);

  Router* router_;
  ZmqLinks* links_;
  ShmPeers* shm_;
  Intake* intake_;
  Parts parts_;
  std::vector<Ready> ready_;
  std::size_t turn_ = 0;
  bool shm_may_hold_ = false;
};

}  // namespace tarn::net
