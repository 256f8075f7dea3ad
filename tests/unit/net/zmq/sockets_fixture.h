// Shared by the tests of the transport's parts: a bound Router, and links to it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/buffer.h"
#include "net/backlog.h"
#include "net/zmq/context.h"
#include "net/zmq/links.h"
#include "net/zmq/polled_socket.h"
#include "net/zmq/router.h"

namespace tarn::net {

inline Frames FrameOf(std::string_view bytes) { return {Buffer::Copy(bytes.data(), bytes.size())}; }

inline std::string TextOf(const FrameView& frame) { return {reinterpret_cast<const char*>(frame.data), frame.size}; }

// Within a process a connection is established at once, and holds twice kHighWaterMark messages.
class SocketsTest : public ::testing::Test {
 protected:
  static constexpr int kHighWaterMark = 4;
  static constexpr SocketOptions kOptions = {.high_water_mark = kHighWaterMark, .reconnect_ms = 20};
  static constexpr char kEndpoint[] = "inproc://router";

  void SetUp() override { ASSERT_TRUE(router_.Bind(&context_, kEndpoint)); }

  PolledSocket NewSocket(const std::string& endpoint = kEndpoint) {
    Expected<PolledSocket> lane = PolledSocket::Open(&context_, zmq::socket_type::dealer, kOptions);
    EXPECT_TRUE(lane && lane->socket.Connect(endpoint));
    return std::move(*lane);
  }
  void Connect(Peer peer, std::size_t lanes = 1) {
    std::vector<PolledSocket> made;
    while (made.size() < lanes) made.push_back(NewSocket());
    links_.Put(peer, kEndpoint, std::move(made));
  }
  // The frames of each message at the router, without the identity.
  std::vector<std::vector<std::string>> TakeFromRouter() {
    std::vector<std::vector<std::string>> messages;
    for (Parts parts; router_.socket()->Receive(&parts);) {
      last_sender_ = router_.SenderOf(&parts);
      messages.emplace_back();
      for (std::size_t i = 1; i < parts.count(); ++i) messages.back().push_back(TextOf(parts[i]));
    }
    return messages;
  }

  ZmqContext context_;
  Router router_{{.socket = kOptions, .accepted_peers_max = 100, .unfinished_bytes_max = 1 << 20}};
  ZmqLinks links_;
  Peer last_sender_;
};

}  // namespace tarn::net
