// Counts connections to a socket that fail before they carry a message: no ZeroMQ, another mechanism, not admitted.
#pragma once

#include <cstdint>

#include "core/error.h"

namespace tarn::net {

// Owned by the thread of the socket that it watches, and gone before it.
class HandshakeMonitor {
 public:
  HandshakeMonitor() = default;
  ~HandshakeMonitor();
  HandshakeMonitor(const HandshakeMonitor&) = delete;
  HandshakeMonitor& operator=(const HandshakeMonitor&) = delete;

  Status Watch(void* context, void* socket);
  // A socket to poll; null before Watch.
  void* handle() const { return events_; }
  // Failures since the last call.
  std::uint64_t Take();

 private:
  void* watched_ = nullptr;
  void* events_ = nullptr;
};

}  // namespace tarn::net
