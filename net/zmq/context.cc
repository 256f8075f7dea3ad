#include "net/zmq/context.h"

#include <malloc.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/error.h"

namespace tarn::net {

void KeepLargeBlocks() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

ZmqContext::ZmqContext(const ZmqContextOptions& options) : context_(zmq_ctx_new()) {
  TARN_CHECK(context_ != nullptr, "out of memory");
  KeepLargeBlocks();
  zmq_ctx_set(context_, ZMQ_IO_THREADS, options.io_threads);
  zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, std::min(options.sockets_max, zmq_ctx_get(context_, ZMQ_SOCKET_LIMIT)));
}

Status ZmqContext::Secure(const CurveKeys& keys) {
  TARN_CHECK(!gate_, "a context gets its keys once");
  auto gate = CurveGate::Start(context_, keys);
  if (!gate) return std::unexpected(gate.error());
  keys_ = keys;
  gate_ = std::move(*gate);
  return {};
}

Status ZmqContext::SecureFromFile(const std::string& path) {
  if (path.empty()) return {};
  const Expected<CurveKeys> keys = LoadCurveKeys(path);
  return keys ? Secure(*keys) : std::unexpected(keys.error());
}

ZmqContext::~ZmqContext() {
  gate_.reset();
  while (zmq_ctx_term(context_) != 0 && zmq_errno() == EINTR) {
  }
}

}  // namespace tarn::net
