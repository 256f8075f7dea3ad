// Encryption and authentication of a fleet on several machines: one CURVE key pair for the whole fleet
// (http://curvezmq.org). Every node has the key file; connections are encrypted, and only nodes with the key pair are
// admitted.
#pragma once

#include <memory>
#include <string>

#include "core/error.h"

namespace zmq {
// NOLINTBEGIN(readability-identifier-naming): of cppzmq
class context_t;
class socket_t;
// NOLINTEND(readability-identifier-naming)
}  // namespace zmq

namespace tarn::net {

// Both as 40 characters of Z85 (ZeroMQ RFC 32).
struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

// A new pair. kUnsupported if ZeroMQ was built without CURVE.
Expected<CurveKeys> MakeCurveKeys();

// The file has a line "public KEY" and a line "secret KEY"; lines that begin with '#' are comments. SaveCurveKeys makes
// it readable only for its owner and overwrites no file (kAlreadyExists; kIo: it cannot be written, and no file is
// left). LoadCurveKeys rejects a missing file (kNotFound), a file that cannot be read (kIo) or that other users may
// access (kInvalidArgument), and contents that are not a key pair or longer than 4 KiB (kMalformed).
Status SaveCurveKeys(const CurveKeys& keys, const std::string& path);
Expected<CurveKeys> LoadCurveKeys(const std::string& path);

// Sets the keys of `socket`, as the side that binds (`server`) or the one that connects.
Status ApplyCurveKeys(const CurveKeys& keys, bool server, zmq::socket_t* socket);

// The ZAP handler of ZeroMQ (RFC 27): a thread that decides about each connection. It admits only peers that have
// proved to have the key pair. One per context; starts before any socket is bound and ends after all are closed.
class CurveGate {
 public:
  // Also tests the handler: a connection with a random key must fail. kInternal if it does not.
  static Expected<std::unique_ptr<CurveGate>> Start(zmq::context_t* context, const CurveKeys& keys);
  ~CurveGate();
  CurveGate(const CurveGate&) = delete;
  CurveGate& operator=(const CurveGate&) = delete;

 private:
  class Impl;
  explicit CurveGate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::net
