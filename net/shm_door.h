// How two processes of one host set up shared memory. They negotiate over their ZeroMQ connection (ShmWord) and pass
// the memory through an abstract Unix socket:
//
//   client                                  server
//   Ask{boot id}                     ---->
//                                    <----  Offer{socket, ticket}   the boot ids are equal; else None
//   connects to the socket, gives the ticket
//                                    <----  a segment (SCM_RIGHTS)
//   Through                          ---->  (behind all that the client sent by ZeroMQ)
//                                    <----  Through
//
// Each side writes to the ring after it has sent Through, and reads from it after it has received Through, so the order
// of messages is kept. Both check that the other process belongs to the same user. The ticket identifies the peer to
// the server.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/types.h"
#include "net/frame.h"
#include "net/shm_lane.h"

namespace tarn::net {

struct ShmWord {
  enum class Kind : std::uint8_t { kAsk = 1, kOffer = 2, kNone = 3, kThrough = 4 } kind = Kind::kNone;
  std::string socket;  // kAsk: the boot id. kOffer: the socket's name
  std::string ticket;  // kOffer
};

// As a frame of the kind kShm. Both texts within kShmTextBytesMax.
Buffer EncodeShmWord(const ShmWord& word);
inline constexpr std::size_t kShmTextBytesMax = 64;
// None: the frame is of another kind. An error: it is malformed.
std::optional<Expected<ShmWord>> DecodeShmWord(const FrameView& frame);

// Identifies the host, also among hosts of the same name; empty if the system provides no boot id.
std::string BootId();

// The server's side: the socket and the connections that have not sent their ticket. One thread.
class ShmDoor {
 public:
  // kIo: the system does not support abstract sockets.
  static Expected<ShmDoor> Open(std::size_t ring_bytes);

  const std::string& name() const { return name_; }
  // Issues a ticket for that peer, valid once. If there are too many tickets, the oldest are dropped.
  std::string TicketFor(Peer peer);

  void AddFiles(std::vector<pollfd>* files) const;
  std::size_t files() const { return (listens_ ? 1 : 0) + guests_.size(); }  // of AddFiles
  // False: no descriptor was left to accept a connection; Listen tries again.
  bool listens() const { return listens_; }
  void Listen() { listens_ = true; }
  // Maximum of connections handled in one Take, including those of other users: any user of the host may connect at any
  // rate.
  static constexpr int kArrivalsMax = 64;

  // Accepts up to kArrivalsMax connections. Sends memory to those with a valid ticket, at most `most`, and calls
  // welcome(peer, lane) for each; the others are closed.
  void Take(std::size_t most, const std::function<void(Peer, ShmLane)>& welcome);

 private:
  ShmDoor(Descriptor listener, std::string name, std::size_t ring_bytes)
      : listener_(std::move(listener)), name_(std::move(name)), ring_bytes_(ring_bytes) {}
  Descriptor Accept();
  bool Serve(Descriptor* guest, std::size_t* room, const std::function<void(Peer, ShmLane)>& welcome);
  std::optional<Peer> Redeem(const std::string& ticket);

  Descriptor listener_;
  std::string name_;
  std::size_t ring_bytes_;
  std::deque<std::pair<std::string, Peer>> tickets_;
  std::deque<Descriptor> guests_;  // without a ticket so far
  bool listens_ = true;
};

// The client's side: a connection that waits for the memory segment. One thread.
class ShmGuest {
 public:
  // kUnavailable: the socket cannot be reached, or belongs to another user.
  static Expected<ShmGuest> Knock(const std::string& name, const std::string& ticket);
  int file() const { return socket_.get(); }
  // nullopt: not yet. An error: the attempt has failed.
  std::optional<Expected<ShmLane>> Take();

 private:
  explicit ShmGuest(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

}  // namespace tarn::net
