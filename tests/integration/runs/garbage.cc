// tarn-garbage: sends malformed multipart messages to a port of a fleet, from a seed. Half are valid messages with
// bytes flipped, frames cut, doubled, added or left out; half are noise.

#include <fmt/format.h>
#include <zmq.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "core/hash.h"
#include "net/frame.h"
#include "tests/unit/net/random_message.h"

namespace {

using Frames = std::vector<std::vector<char>>;

Frames Noise(tarn::SplitMix& rng) {
  Frames frames(1 + rng.Below(6));
  for (auto& frame : frames) {
    frame.resize(rng.Below(rng.Chance(0.05) ? 200'000 : 300));
    for (char& c : frame) c = static_cast<char>(rng.Next());
  }
  return frames;
}

Frames Damaged(tarn::SplitMix& rng) {
  const std::size_t body = rng.Below(std::variant_size_v<tarn::Body>);
  const tarn::Message message = tarn::net::testing::RandomMessage(&rng, body, 1 + rng.Below(50));
  Frames frames;
  const auto encoded = tarn::net::Encode(message);
  if (!encoded) return Noise(rng);
  for (const tarn::Buffer& b : *encoded) {
    const char* p = reinterpret_cast<const char*>(b.data());
    frames.emplace_back(p, p + b.size());
  }
  const std::uint64_t damages = 1 + rng.Below(4);
  for (std::uint64_t i = 0; i < damages; ++i) {
    auto& frame = frames[rng.Below(frames.size())];
    switch (rng.Below(5)) {
      case 0:
        if (!frame.empty()) frame[rng.Below(frame.size())] ^= static_cast<char>(1u << rng.Below(8));
        break;
      case 1: frame.resize(rng.Below(frame.size() + 1)); break;
      case 2: frame.insert(frame.end(), rng.Below(100), 'x'); break;
      case 3: frames.push_back(std::vector<char>(frame)); break;
      default:
        if (frames.size() > 1) frames.pop_back();
    }
  }
  return frames;
}

bool Send(void* socket, const Frames& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (zmq_send(socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0) < 0) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::string endpoint;
  std::uint64_t count = 10'000, seed = 1;
  CLI::App app{"Sends malformed messages to a port of a fleet on this machine."};
  app.add_option("--endpoint", endpoint, "tcp://127.0.0.1:PORT")->required();
  app.add_option("--count", count, "messages")->capture_default_str();
  app.add_option("--seed", seed, "of what is sent")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (endpoint.find("127.0.0.1") == std::string::npos) {
    fmt::print(stderr, "tarn-garbage: only loopback ports are targets\n");
    return 2;
  }
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_DEALER);
  const int linger_ms = 5000, timeout_ms = 10'000;
  zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
  zmq_setsockopt(socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof(timeout_ms));
  if (zmq_connect(socket, endpoint.c_str()) != 0) return 1;
  tarn::SplitMix rng(seed);
  std::uint64_t sent = 0, answers = 0;
  for (; sent < count; ++sent) {
    if (!Send(socket, rng.Chance(0.5) ? Noise(rng) : Damaged(rng))) break;
    char discard[256];
    while (zmq_recv(socket, discard, sizeof(discard), ZMQ_DONTWAIT) >= 0) ++answers;
  }
  zmq_close(socket);
  zmq_ctx_term(context);
  fmt::print("{} malformed messages sent, {} answer frames seen\n", sent, answers);
  return sent == count ? 0 : 1;
}
