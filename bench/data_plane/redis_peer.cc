// Redis as a peer of push_pull's sparse operations: see --help and README.md. The client does minimal work: requests
// are encoded before the measurement, and answers, whose length is known, are received without parsing.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/data_plane/child.h"
#include "bench/data_plane/measure.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr int kExitUsage = 2;
constexpr std::size_t kValueBytes = 64;
constexpr std::size_t kBatches = 256;
constexpr std::size_t kLoadBatch = 10'000;
constexpr double kStartSeconds = 30;
constexpr double kProgressSeconds = 2;
constexpr std::string_view kOk = "+OK\r\n";

struct Options {
  std::string program = "redis-server";
  std::uint64_t rows = 10'000'000;
  std::size_t batch = 10'000;
  std::size_t depth = 8;
  Duration duration;
};

// A connected socket. The caller knows the size and the beginning of each answer in advance.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      Require(sent > 0, "redis: send");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  // The next `bytes` bytes, valid until the next call; they must begin with `prefix`.
  std::string_view Receive(std::size_t bytes, std::string_view prefix) {
    answer_.resize(bytes);
    Require(recv(fd_, answer_.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes), "redis: receive");
    if (!std::string_view(answer_).starts_with(prefix)) Die("redis: unexpected answer: " + answer_.substr(0, 80));
    return answer_;
  }

 private:
  int fd_;
  std::string answer_;
};

void AppendBulk(std::string_view bytes, std::string* out) { *out += fmt::format("${}\r\n{}\r\n", bytes.size(), bytes); }

std::string KeyOf(std::uint64_t row) {
  const std::uint64_t key = Mix64(row);
  return {reinterpret_cast<const char*>(&key), sizeof key};
}

const std::string& Value() {
  static const std::string kValue(kValueBytes, 'v');
  return kValue;
}

// MGET or MSET of these rows.
std::string Request(const char* verb, const std::vector<std::uint64_t>& rows) {
  const bool set = std::string_view(verb) == "MSET";
  std::string out = fmt::format("*{}\r\n", 1 + rows.size() * (set ? 2 : 1));
  AppendBulk(verb, &out);
  for (const std::uint64_t row : rows) {
    AppendBulk(KeyOf(row), &out);
    if (set) AppendBulk(Value(), &out);
  }
  return out;
}

// The answer of MGET for that many rows.
std::string Values(std::size_t rows) {
  std::string out = fmt::format("*{}\r\n", rows);
  for (std::size_t i = 0; i < rows; ++i) AppendBulk(Value(), &out);
  return out;
}

// A connected socket, or -1 while no server listens.
int ConnectTcp(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  Require(fd >= 0, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

int ConnectUnix(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  Require(fd >= 0, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    Die(fmt::format("{}: the path of a Unix socket: {} bytes, expected at most {}", path, path.size(),
                    sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

// A running server and its addresses.
struct Server {
  std::string program, output, unix_path;
  std::uint16_t port;
  Child process;
};

Server Start(const std::string& program, const std::string& folder) {
  Server server{program, folder + "/output", folder + "/redis.sock", FreePort(), {}};
  server.process = Spawn({program, "--bind", "127.0.0.1", "--port", std::to_string(server.port), "--unixsocket",
                          server.unix_path, "--save", "", "--appendonly", "no", "--dir", folder},
                         server.output);
  return server;
}

// Waits until the server accepts connections. Exits with the server's output if it does not start.
int WaitFor(Server* server, const std::function<int()>& connect) {
  std::string how;
  for (const double begin = Now(); Now() - begin < kStartSeconds;) {
    if (const int fd = connect(); fd >= 0) return fd;
    if (server->process.Ended(&how)) Die(fmt::format("{}: {}\n{}", server->program, how, ReadText(server->output)));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Die(fmt::format("{} has not accepted a connection in {} s\n{}", server->program, kStartSeconds,
                  ReadText(server->output)));
}

void Load(const Options& options, Connection* connection) {
  double last = Now();
  for (std::uint64_t row = 0; row < options.rows;) {
    std::vector<std::uint64_t> rows;
    while (rows.size() < kLoadBatch && row < options.rows) rows.push_back(row++);
    connection->Send(Request("MSET", rows));
    connection->Receive(kOk.size(), kOk);
    if (Now() - last < kProgressSeconds) continue;
    last = Now();
    fmt::print(stderr, "redis_peer: {} of {} rows written\n", row, options.rows);
  }
}

void Measure(const Options& options, const char* verb, const std::string& name, Connection* connection) {
  SplitMix random(1);
  std::vector<std::string> requests;
  while (requests.size() < kBatches) {
    std::vector<std::uint64_t> rows(options.batch);
    for (std::uint64_t& row : rows) row = random.Below(options.rows);
    requests.push_back(Request(verb, rows));
  }
  const std::string answer = std::string_view(verb) == "MGET" ? Values(options.batch) : std::string(kOk);
  connection->Send(requests[0]);
  connection->Receive(answer.size(), answer);
  std::size_t next = 0;
  const std::string_view beginning = std::string_view(answer).substr(0, 64);
  const double batches = PerSecond(
      options.duration, options.depth, [&] { return connection->Send(requests[next++ % kBatches]), 0; },
      [&](int) { connection->Receive(answer.size(), beginning); });
  Print({.name = name,
         .value = batches * double(options.batch),
         .unit = "rows/s",
         .settings =
             {{"rows", options.rows}, {"value_bytes", kValueBytes}, {"batch", options.batch}, {"depth", options.depth}},
         .more = {}});
}

bool OnPath(const std::string& program) {
  if (program.contains('/')) return access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access(fmt::format("{}/{}", folder, program).c_str(), X_OK) == 0) return true;
  return false;
}

int Run(const Options& options) {
  if (!OnPath(options.program)) {
    for (const char* transport : {"tcp", "unix"})
      for (const char* operation : {"mget", "mset"})
        PrintSkipped(fmt::format("redis.{}.{}", transport, operation),
                     fmt::format("{} is not installed (tools/install bench)", options.program));
    return 0;
  }
  const TemporaryFolder folder;
  Server server = Start(options.program, folder.path());
  Connection tcp(WaitFor(&server, [&] { return ConnectTcp(server.port); }));
  Connection local(WaitFor(&server, [&] { return ConnectUnix(server.unix_path); }));
  Load(options, &tcp);
  Measure(options, "MGET", "redis.tcp.mget", &tcp);
  Measure(options, "MSET", "redis.tcp.mset", &tcp);
  Measure(options, "MGET", "redis.unix.mget", &local);
  Measure(options, "MSET", "redis.unix.mset", &local);
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Measures Redis for comparison with push_pull's sparse operations: starts redis-server on a free port of\n"
      "loopback and a Unix socket, without persistence and in a temporary folder, fills it, and prints one line of\n"
      "JSON for each of\n\n"
      "  redis.tcp.mget, redis.unix.mget   random rows of 64 bytes, rows/s; many keys per request, several in flight\n"
      "  redis.tcp.mset, redis.unix.mset\n\n"
      "Without redis-server it reports each measurement as skipped. tools/install bench installs it.\n\n"
      "  redis_peer --rows 1000000\n\n"
      "Exit status: 0 done or skipped, 1 failed, 2 bad usage."};
  app.add_option("--program", options.program, "server program: a name on the PATH, or a path")->capture_default_str();
  app.add_option("--rows", options.rows, "rows (keys) to load")->capture_default_str()->check(CLI::Range(1L, 1L << 40));
  app.add_option("--batch", options.batch, "keys per request")->capture_default_str()->check(CLI::Range(1, 500'000));
  app.add_option("--depth", options.depth, "requests in flight")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.duration.seconds,
                 "seconds per measurement; a warm-up of a quarter of this time precedes it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  return Run(options);
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) { return tarn::bench::Main(argc, argv); }
