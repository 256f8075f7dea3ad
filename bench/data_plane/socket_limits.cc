// Plain TCP sockets on loopback, the layer below ZeroMQ.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "bench/data_plane/child.h"
#include "bench/data_plane/limits.h"

namespace tarn::bench {
namespace {

void RequireConnected(bool good) {
  if (!good) Die("the other side of a socket has disconnected");
}

void ReadAll(int fd, void* to, std::size_t bytes) {
  RequireConnected(recv(fd, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
}

void WriteAll(int fd, const std::byte* from, std::size_t bytes) {
  while (bytes != 0) {
    const ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);
    RequireConnected(sent > 0);
    from += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

struct RequestHeader {
  std::size_t request_bytes, reply_bytes;  // request_bytes includes this header
};

[[noreturn]] void Answer(int fd, const Largest& largest) {
  std::vector<std::byte> in(largest.request_bytes), out(largest.reply_bytes);
  while (true) {
    RequestHeader header{};
    if (recv(fd, &header, sizeof header, MSG_WAITALL) != sizeof header) _exit(0);
    ReadAll(fd, in.data(), header.request_bytes - sizeof header);
    WriteAll(fd, out.data(), header.reply_bytes);
  }
}

// The two ends of a connection over loopback. The second is for a child process.
std::pair<int, int> Connection() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Require(listener >= 0, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener, generic, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, generic, &size) == 0,
          "cannot listen on a port of 127.0.0.1");
  const int near = socket(AF_INET, SOCK_STREAM, 0);
  Require(near >= 0 && connect(near, generic, size) == 0, "connect");
  const int far = accept(listener, nullptr, nullptr);
  Require(far >= 0, "accept");
  close(listener);
  const int on = 1;
  for (const int fd : {near, far})
    Require(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
  return {near, far};
}

// Either the requests or the replies must be small (kSmallBytes), so that those in flight fit into the socket's buffers
// and the two sides do not deadlock.
void Measure(int fd, const Exchange& exchange, const Duration& duration) {
  const std::size_t extra = sizeof(RequestHeader);
  std::vector<std::byte> request(exchange.request_bytes + extra), reply(exchange.reply_bytes);
  const RequestHeader header{request.size(), reply.size()};
  std::memcpy(request.data(), &header, sizeof header);
  const auto start = [&] { return WriteAll(fd, request.data(), request.size()), 0; };
  const auto finish = [&](int) { ReadAll(fd, reply.data(), reply.size()); };
  Figure figure = ExchangeFigure("socket.tcp", exchange);
  if (exchange.round_trip) return PrintLatencies(std::move(figure), Latencies(duration, [&] { finish(start()); }));
  figure.value = exchange.units * PerSecond(duration, exchange.depth, start, finish);
  Print(figure);
}

}  // namespace

void MeasureSockets(const LimitOptions& options) {
  const std::vector<Exchange> exchanges = Exchanges(options);
  const auto [near, far] = Connection();
  const Child server = Fork([&, near = near, far = far] {
    close(near);
    Answer(far, LargestOf(exchanges));
  });
  close(far);
  for (const Exchange& exchange : exchanges) {
    // Skips exchanges in which neither side is small (sparse_pull): both could fill the buffers, and two blocking
    // writers would deadlock.
    if (exchange.request_bytes > kSmallBytes && exchange.reply_bytes > kSmallBytes) continue;
    Measure(near, exchange, options.duration);
  }
  close(near);
}

}  // namespace tarn::bench
