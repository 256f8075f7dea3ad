// How two processes of one host set up shared memory. They exchange ShmHandshake messages over their ZeroMQ connection
// and pass the memory through an abstract Unix socket:
//
//   client                                  server
//   Request{boot id}                 ---->
//                                    <----  Offer{socket, ticket}; Refuse if the boot ids differ, or the
//                                             server accepts no more channels
//   connects to the socket, sends the ticket and its wake file (SCM_RIGHTS)
//                                    <----  a segment and the server's wake file
//   Switch                           ---->  (after everything that the client has sent by ZeroMQ)
//                                    <----  Switch
//
// Each side writes to the ring after it has sent Switch, and reads from it after it has received Switch, so the order
// of messages is kept. Both check that the other process belongs to the same user. It could steal wake-ups, but it
// could end this process anyway. The ticket identifies the peer to the server.
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
#include "net/shm_channel.h"

namespace tarn::net {

struct ShmHandshake {
  enum class Kind : std::uint8_t { kRequest = 1, kOffer = 2, kRefuse = 3, kSwitch = 4 } kind = Kind::kRefuse;
  std::string socket;  // kRequest: the boot id. kOffer: the socket's name
  std::string ticket;  // kOffer
};

// As a frame of the kind kShm. Both texts have at most kShmTextBytesMax bytes.
Buffer EncodeShmHandshake(const ShmHandshake& message);
inline constexpr std::size_t kShmTextBytesMax = 64;
// nullopt: the frame is of another kind. An error: it is malformed.
std::optional<Expected<ShmHandshake>> DecodeShmHandshake(const FrameView& frame);

// Identifies the host, also among hosts of the same name; empty if the system provides no boot id.
std::string BootId();

// The server's side: the listening socket, and connections that have not sent their ticket yet. One thread.
class ShmListener {
 public:
  // wake_file: of this loop (net/wake_file.h); outlives the listener. kIo: no abstract socket can be opened.
  static Expected<ShmListener> Open(std::size_t ring_bytes, int wake_file);

  const std::string& name() const { return name_; }
  // Issues a ticket for that peer, valid once. Drops the oldest ticket beyond limits::kShmTicketsMax.
  std::string TicketFor(Peer peer);

  // Appends the files to poll for input. files(): their number.
  void AddFiles(std::vector<pollfd>* files) const;
  std::size_t files() const { return (listens_ ? 1 : 0) + connections_.size(); }
  // False: no descriptor was left to accept a connection; Listen tries again.
  bool listens() const { return listens_; }
  void Listen() { listens_ = true; }
  // Maximum number of connections accepted in one Take. Bounded because any user of the host may connect at any rate.
  static constexpr int kArrivalsMax = 64;

  // Accepts up to kArrivalsMax connections. Sends memory to at most `most` of those with a valid ticket and calls
  // accept(peer, channel) for each. Keeps up to limits::kShmUnidentifiedMax connections that have not sent their ticket
  // yet; closes the others.
  void Take(std::size_t most, const std::function<void(Peer, ShmChannel)>& accept);

 private:
  ShmListener(Descriptor listener, std::string name, std::size_t ring_bytes, int wake_file)
      : listener_(std::move(listener)), name_(std::move(name)), ring_bytes_(ring_bytes), wake_file_(wake_file) {}
  Descriptor Accept();
  bool Serve(Descriptor* connection, std::size_t* room, const std::function<void(Peer, ShmChannel)>& accept);
  std::optional<Peer> Redeem(const std::string& ticket);

  Descriptor listener_;
  std::string name_;
  std::size_t ring_bytes_;
  int wake_file_;
  std::deque<std::pair<std::string, Peer>> tickets_;
  std::deque<Descriptor> connections_;  // have not sent a ticket yet
  bool listens_ = true;
};

// The client's side: a connection that waits for the memory segment. One thread.
class ShmConnector {
 public:
  // wake_file: of this loop. kUnavailable: the socket cannot be reached, belongs to another user or accepts no ticket.
  // The message is a predicate whose subject is the socket, such as "belongs to another user".
  static Expected<ShmConnector> Connect(const std::string& name, const std::string& ticket, int wake_file);
  int file() const { return socket_.get(); }
  // nullopt: not yet. An error: the attempt has failed.
  std::optional<Expected<ShmChannel>> Take();

 private:
  explicit ShmConnector(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

}  // namespace tarn::net
