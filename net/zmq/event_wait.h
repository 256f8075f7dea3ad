// Waits for an event of a transport: a message arrives, a socket has room for waiting messages, shared memory changes,
// or another thread calls Wake.
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

// Owned by the thread of the objects for which it waits; they outlive it.
class EventWait {
 public:
  EventWait(Router* router, ZmqLinks* links, ShmPeers* shm, const Backlog* backlog, WakeEvent* wake)
      : router_(router), links_(links), shm_(shm), backlog_(backlog), wake_(wake) {}

  // Waits at most `wait_us` (not at all if <= 0), and records which lanes may have messages. False after a signal. To
  // wait (wait_us > 0), all lanes must have been found empty before.
  bool Wait(TimeUs wait_us);

  // Sets for how long Wait polls before it sleeps.
  void SetBusyPoll(TimeUs us) { busy_poll_us_ = us; }

 private:
  // Polls for at most `us`. Returns whether there was an event. Sets *uninterrupted to false if it was a signal.
  bool BusyPoll(TimeUs us, bool* uninterrupted);
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
