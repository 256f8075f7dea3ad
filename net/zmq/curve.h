// Who may speak to a fleet that leaves its machine: one CURVE key pair for the whole fleet (http://curvezmq.org).
// Every node holds the file with it; connections are encrypted, and only nodes that hold the pair are admitted.
#pragma once

#include <memory>
#include <string>

#include "core/error.h"

namespace zmq {
class context_t;
class socket_t;
}  // namespace zmq

namespace tarn::net {

// Both as 40 characters of Z85 (ZeroMQ RFC 32).
struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

// A new pair. kUnsupported if ZeroMQ was built without CURVE.
Expected<CurveKeys> MakeCurveKeys();

// The file: a line "public KEY" and a line "secret KEY"; lines that begin with '#' are comments. It is written for its
// owner only, never over another, and refused when others may read it.
Status SaveCurveKeys(const CurveKeys& keys, const std::string& path);
Expected<CurveKeys> LoadCurveKeys(const std::string& path);

// Makes `socket` one of the fleet's: as the side that binds (`server`), or the one that connects.
Status ApplyCurveKeys(const CurveKeys& keys, bool server, zmq::socket_t* socket);

// The thread that ZeroMQ asks about each connection (ZAP, ZeroMQ RFC 27). It admits those that have proved to hold
// the pair, and nobody else. One per context; starts before any socket is bound and ends after they are closed.
class CurveGate {
 public:
  // Also proves that the gate is shut: a connection with a throw-away key must fail. kInternal if it does not.
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
