// Raw ZeroMQ, the limit for everything that uses it. As in tarn, a DEALER sends requests and a ROUTER answers.
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "bench/data_plane/child.h"
#include "bench/data_plane/limits.h"
#include "net/zmq/transport.h"

namespace tarn::bench {
namespace {

// Messages up to this size are copied, which is cheaper than sharing.
constexpr std::size_t kCopiedBytes = 16 << 10;
constexpr int kEndpointBytes = 128;

// Returns the result of `call`; ends the process if it throws.
template <typename Call>
decltype(auto) Check(const char* what, Call call) {
  try {
    return call();
  } catch (const zmq::error_t& error) {
    Die(std::string("ZeroMQ: ") + what + ": " + error.what());
  }
}

// Opens a socket and its context, which exist until the end of the process.
zmq::socket_t* OpenSocket(zmq::socket_type type) {
  net::KeepLargeBlocks();
  auto* context = Check("context", [] { return new zmq::context_t; });
  return Check("socket", [&] { return new zmq::socket_t(*context, type); });
}

void SendBytes(zmq::socket_t* socket, std::byte* bytes, std::size_t size) {
  zmq::message_t message = Check("message", [&] {
    return size <= kCopiedBytes ? zmq::message_t(static_cast<const void*>(bytes), size)
                                : zmq::message_t(bytes, size, [](void*, void*) {}, nullptr);
  });
  Check("send", [&] { socket->send(message, zmq::send_flags::none); });
}

void Receive(zmq::socket_t* socket, zmq::message_t* message) {
  Check("receive", [&] { [[maybe_unused]] const auto size = socket->recv(*message); });
}

// Every request begins with the size of its answer.
[[noreturn]] void Answer(const std::string& endpoint, int endpoint_pipe, std::size_t reply_bytes_max) {
  zmq::socket_t* router = OpenSocket(zmq::socket_type::router);
  Check("bind", [&] { router->bind(endpoint); });
  std::string bound = Check("endpoint", [&] { return router->get(zmq::sockopt::last_endpoint); });
  bound.resize(kEndpointBytes);
  Require(write(endpoint_pipe, bound.data(), bound.size()) == kEndpointBytes, "pipe");
  std::vector<std::byte> reply(reply_bytes_max, std::byte{1});
  zmq::message_t identity, request;
  while (true) {
    Receive(router, &identity);
    Receive(router, &request);
    std::size_t wanted = 0;
    std::memcpy(&wanted, request.data(), sizeof wanted);
    Check("send", [&] { router->send(identity, zmq::send_flags::sndmore); });
    SendBytes(router, reply.data(), wanted);
  }
}

void Measure(zmq::socket_t* dealer, const Child& server, const char* prefix, const Exchange& exchange,
             const Duration& duration) {
  std::vector<std::byte> request(exchange.request_bytes, std::byte{1});
  std::memcpy(request.data(), &exchange.reply_bytes, sizeof exchange.reply_bytes);
  zmq::message_t reply;
  const auto start = [&] { return SendBytes(dealer, request.data(), request.size()), 0; };
  const auto finish = [&](int) {
    Receive(dealer, &reply);
    if (reply.size() != exchange.reply_bytes)
      Die("ZeroMQ: an answer of " + std::to_string(reply.size()) + " bytes, expected " +
          std::to_string(exchange.reply_bytes));
  };
  Figure figure = ExchangeFigure(prefix, exchange);
  if (exchange.round_trip) return PrintLatencies(std::move(figure), Latencies(duration, [&] { finish(start()); }));
  const CpuMeter meter([&] { return server.CpuSeconds(); });
  figure.value = exchange.units * PerSecond(duration, exchange.depth, start, finish);
  figure.more = meter.Cores();
  Print(figure);
}

}  // namespace

void MeasureZmq(const LimitOptions& options) {
  const std::vector<Exchange> exchanges = Exchanges(options);
  const std::size_t reply_bytes_max = LargestOf(exchanges).reply_bytes;
  for (const std::string transport : {"tcp", "ipc"}) {
    // The worker's side is also a child process, because a process with a context must not fork.
    const std::string prefix = "zmq." + transport;
    int pipe_ends[2];
    Require(pipe(pipe_ends) == 0, "pipe");
    const std::string endpoint =
        transport == "tcp" ? "tcp://127.0.0.1:*" : "ipc://@tarn-bench-" + std::to_string(getpid());
    Child server = Fork([&] { Answer(endpoint, pipe_ends[1], reply_bytes_max); });
    close(pipe_ends[1]);
    char bound[kEndpointBytes] = {};
    if (read(pipe_ends[0], bound, sizeof bound) != sizeof bound)
      Die("ZeroMQ: the answering process has ended before it sent its endpoint");
    close(pipe_ends[0]);
    Child worker = Fork([&] {
      zmq::socket_t* dealer = OpenSocket(zmq::socket_type::dealer);
      Check("connect", [&] { dealer->connect(bound); });
      for (const Exchange& exchange : exchanges) Measure(dealer, server, prefix.c_str(), exchange, options.duration);
    });
    worker.WaitFor(&server);
  }
}

}  // namespace tarn::bench
