// How two processes of one host come to share memory. They are connected by ZeroMQ already, which carries the words of
// their agreement (ShmWord); a Unix socket without a name in the file system passes the memory:
//
//   client                                  server
//   Ask{boot id}                     ---->
//                                    <----  Offer{socket, ticket}   the boot ids are equal; else None
//   connects to the socket, gives the ticket
//                                    <----  a segment (SCM_RIGHTS)
//   Through                          ---->  (behind all that the client sent by ZeroMQ)
//                                    <----  Through
//
// Each side writes into the ring once it has said Through, and reads it once the other has, so nothing is overtaken.
// Both check that the other is the same user's. The ticket tells the server which of its peers has come.
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

// What tells hosts apart that have the same names; empty where the system does not say.
std::string BootId();

// The server's side: the socket, and those who have come. One thread.
class ShmDoor {
 public:
  // kIo: the system has no such sockets.
  static Expected<ShmDoor> Open(std::size_t ring_bytes);

  const std::string& name() const { return name_; }
  // For that peer, once. The oldest of many tickets are forgotten.
  std::string TicketFor(Peer peer);

  void AddFiles(std::vector<pollfd>* files) const;
  std::size_t files() const { return (listens_ ? 1 : 0) + guests_.size(); }  // of AddFiles
  // False: the process has no file left for whoever comes; Listen looks again.
  bool listens() const { return listens_; }
  void Listen() { listens_ = true; }
  // Connections looked at in one Take, those of other users too: anybody on this host may knock as often as he likes.
  static constexpr int kArrivalsMax = 64;

  // Takes in who has come, kArrivalsMax at most; calls welcome(peer, lane) for each that had a ticket and got its
  // memory, `most` at most: the others are turned away.
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

// The client's side: a connection that waits for its memory. One thread.
class ShmGuest {
 public:
  // kUnavailable: the socket cannot be reached from here, or is another user's.
  static Expected<ShmGuest> Knock(const std::string& name, const std::string& ticket);
  int file() const { return socket_.get(); }
  // None: not yet. An error: it will not come.
  std::optional<Expected<ShmLane>> Take();

 private:
  explicit ShmGuest(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

}  // namespace tarn::net
