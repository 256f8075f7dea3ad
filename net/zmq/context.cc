#include "net/zmq/context.h"

#include <malloc.h>

#include <algorithm>
#include <utility>
#include <zmq.hpp>

#include "core/error.h"

namespace tarn::net {

void KeepLargeBlocks() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

ZmqContext::ZmqContext(const ZmqContextOptions& options) {
  try {
    context_ = std::make_unique<zmq::context_t>();
  } catch (const zmq::error_t&) {
    TARN_CHECK(false, "out of memory");
  }
  KeepLargeBlocks();
  try {
    context_->set(zmq::ctxopt::io_threads, options.io_threads);
    context_->set(zmq::ctxopt::max_sockets, std::min(options.sockets_max, context_->get(zmq::ctxopt::socket_limit)));
  } catch (const zmq::error_t&) {
    TARN_CHECK(false, "ZeroMQ must accept io_threads and sockets_max");
  }
}

Status ZmqContext::Secure(const CurveKeys& keys) {
  TARN_CHECK(!gate_, "a context gets its keys once");
  auto gate = CurveGate::Start(context_.get(), keys);
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
  context_.reset();
}

}  // namespace tarn::net
