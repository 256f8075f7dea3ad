// Waits until something happens to a transport: a message has come, a socket has room for what waits for it, memory has
// changed, or another thread calls Wake.
#pragma once

#include <poll.h>

#include <vector>
#include <zmq.hpp>

#include "core/types.h"
#include "net/backlog.h"
#include "net/shm_peers.h"
#include "net/zmq/links.h"
#include "net/zmq/router.h"
#include "net/zmq/wake_event.h"

namespace tarn::net {

// Owned by the thread of those for which it waits, and which outlive it.
class EventWait {
 public:
  EventWait(Router* router, ZmqLinks* links, ShmPeers* shm, const Backlog* backlog, WakeEvent* wake)
      : router_(router), links_(links), shm_(shm), backlog_(backlog), wake_(wake) {}

  // Waits at most so long (not at all if it is 0 or less), and notes which lanes may hold messages. False after a
  // signal. To wait in it, all lanes must have been found empty.
  bool Wait(TimeUs wait_us);

  // For how long a Wait looks before it sleeps.
  void SetBusyPoll(TimeUs us) { busy_poll_us_ = us; }

 private:
  // Looks until something has happened, at most so long. `fine`: it was no signal.
  bool Look(TimeUs us, bool* fine);
  bool Poll(TimeUs wait_us);
  bool PollFiles(int wait_ms);
  bool PollSockets(int wait_ms);

  Router* router_;
  ZmqLinks* links_;
  ShmPeers* shm_;
  const Backlog* backlog_;
  WakeEvent* wake_;
  std::vector<pollfd> files_;
  std::vector<zmq::pollitem_t> items_;
  TimeUs busy_poll_us_ = 0;
};

}  // namespace tarn::net
