// Raw ZeroMQ: the best that anything above it can reach. As in tarn, one DEALER asks and one ROUTER answers.
#include <unistd.h>
#include <zmq.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/data_plane/child.h"
#include "bench/data_plane/limits.h"
#include "net/zmq/transport.h"

namespace tarn::bench {
namespace {

constexpr std::size_t kCopiedBytes = 16 << 10;  // smaller ones are cheaper to copy than to hand over
constexpr int kEndpointBytes = 128;

void Check(bool good, const char* what) {
  if (!good) Die(std::string("ZeroMQ: ") + what + ": " + zmq_strerror(zmq_errno()));
}

// A socket and its context; both go with the process of the role.
void* OpenSocket(int type) {
  net::KeepLargeBlocks();
  void* context = zmq_ctx_new();
  Check(context != nullptr, "context");
  void* socket = zmq_socket(context, type);
  Check(socket != nullptr, "socket");
  return socket;
}

void SendBytes(void* socket, std::byte* bytes, std::size_t size, int flags) {
  zmq_msg_t message;
  if (size <= kCopiedBytes) {
    Check(zmq_msg_init_size(&message, size) == 0, "message");
    std::memcpy(zmq_msg_data(&message), bytes, size);
  } else {
    Check(zmq_msg_init_data(&message, bytes, size, [](void*, void*) {}, nullptr) == 0, "message");
  }
  Check(zmq_msg_send(&message, socket, flags) >= 0, "send");
}

// Every request begins with the bytes that its answer is to have.
[[noreturn]] void Answer(const std::string& endpoint, int endpoint_pipe, std::size_t reply_bytes_max) {
  void* router = OpenSocket(ZMQ_ROUTER);
  Check(zmq_bind(router, endpoint.c_str()) == 0, "bind");
  char bound[kEndpointBytes] = {};
  std::size_t bound_size = sizeof bound;
  Check(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, bound, &bound_size) == 0, "endpoint");
  Require(write(endpoint_pipe, bound, sizeof bound) == sizeof bound, "pipe");
  std::vector<std::byte> reply(reply_bytes_max, std::byte{1});
  zmq_msg_t identity, request;
  zmq_msg_init(&identity);
  zmq_msg_init(&request);
  while (true) {
    Check(zmq_msg_recv(&identity, router, 0) >= 0, "receive");
    Check(zmq_msg_recv(&request, router, 0) >= 0, "receive");
    std::size_t wanted = 0;
    std::memcpy(&wanted, zmq_msg_data(&request), sizeof wanted);
    Check(zmq_msg_send(&identity, router, ZMQ_SNDMORE) >= 0, "send");
    SendBytes(router, reply.data(), wanted, 0);
  }
}

void Measure(void* dealer, const Child& server, const char* prefix, const Exchange& exchange,
             const Duration& duration) {
  std::vector<std::byte> request(exchange.request_bytes, std::byte{1});
  std::memcpy(request.data(), &exchange.reply_bytes, sizeof exchange.reply_bytes);
  zmq_msg_t reply;
  zmq_msg_init(&reply);
  const auto start = [&] { return SendBytes(dealer, request.data(), request.size(), 0), 0; };
  const auto finish = [&](int) {
    Check(zmq_msg_recv(&reply, dealer, 0) >= 0, "receive");
    if (zmq_msg_size(&reply) != exchange.reply_bytes) Die("ZeroMQ: an answer of another size");
  };
  Figure figure = ExchangeFigure(prefix, exchange);
  if (exchange.round_trip) return PrintLatencies(std::move(figure), Latencies(duration, [&] { finish(start()); }));
  const CpuMeter meter([&] { return server.CpuSeconds(); });
  figure.value = exchange.units * PerSecond(duration, exchange.depth, start, finish);
  figure.more = meter.Cores();
  Print(figure);
  zmq_msg_close(&reply);
}

}  // namespace

void MeasureZmq(const LimitOptions& options) {
  const std::vector<Exchange> exchanges = Exchanges(options);
  const std::size_t reply_bytes_max = LargestOf(exchanges).reply_bytes;
  for (const std::string transport : {"tcp", "ipc"}) {
    // The worker's side is a child, too: a process with a context in it must not fork.
    const std::string prefix = "zmq." + transport;
    int pipe_ends[2];
    Require(pipe(pipe_ends) == 0, "pipe");
    const std::string endpoint =
        transport == "tcp" ? "tcp://127.0.0.1:*" : "ipc://@tarn-bench-" + std::to_string(getpid());
    Child server = Fork([&] { Answer(endpoint, pipe_ends[1], reply_bytes_max); });
    close(pipe_ends[1]);
    char bound[kEndpointBytes] = {};
    if (read(pipe_ends[0], bound, sizeof bound) != sizeof bound) Die("ZeroMQ: the answering side has ended");
    close(pipe_ends[0]);
    Child worker = Fork([&] {
      void* dealer = OpenSocket(ZMQ_DEALER);
      Check(zmq_connect(dealer, bound) == 0, "connect");
      for (const Exchange& exchange : exchanges) Measure(dealer, server, prefix.c_str(), exchange, options.duration);
    });
    worker.WaitFor(&server);
  }
}

}  // namespace tarn::bench
