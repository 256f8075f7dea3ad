// Fixture of the transport tests: transports of one context over loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "net/zmq/transport.h"
#include "tests/unit/net/zmq/messages.h"

namespace tarn::net {

inline constexpr std::int64_t kSecondUs = 1'000'000;

class TransportTest : public ::testing::Test {
 protected:
  // Over plain TCP.
  std::unique_ptr<ZmqTransport> Make(ZmqTransportOptions options = {}) {
    options.linger_ms = 0;
    options.insecure = true;
    return std::make_unique<ZmqTransport>(&context_, options);
  }

  // Receives on `transport` until there are `n` messages or `limit_us` has passed; returns them.
  static std::vector<Received> ReceiveN(Transport* transport, std::size_t n, std::int64_t limit_us = 10 * kSecondUs) {
    std::vector<Received> got;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(limit_us);
    while (got.size() < n && std::chrono::steady_clock::now() < end) transport->Receive(&got, n - got.size(), 20'000);
    return got;
  }

  // Receives on `to` until `n` messages of `from` have arrived. Also runs the sender, which still holds the messages
  // sent before the connection was established.
  static std::vector<Received> Move(Transport* from, Transport* to, std::size_t n) {
    std::vector<Received> got;
    for (int i = 0; i < 1000 && got.size() < n; ++i) {
      from->Receive(&got, 0, 0);
      to->Receive(&got, n - got.size(), 5'000);
    }
    return got;
  }

  // Receives on `transport` until `done`, for at most five seconds.
  static bool ReceiveUntil(Transport* transport, const std::function<bool()>& done) {
    std::vector<Received> got;
    for (int i = 0; i < 500 && !done(); ++i) transport->Receive(&got, 16, 10'000);
    return done();
  }

  ZmqContext context_;
};

}  // namespace tarn::net
