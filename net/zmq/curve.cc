#include "net/zmq/curve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/log.h"
#include "net/zmq/connections.h"
#include "net/zmq/socket.h"

namespace tarn::net {
namespace {

constexpr std::size_t kKeyText = 40;
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kKeyFileBytesMax = 4096;
constexpr int kRejectionMsMax = 5000;

// cppzmq does not wrap Z85 and key generation, so the C functions are called.
bool IsKey(const std::string& text) {
  std::array<std::uint8_t, kKeyBytes> bytes;
  return text.size() == kKeyText && zmq_z85_decode(bytes.data(), text.c_str()) != nullptr;
}

template <typename Option>
Status SetText(zmq::socket_t* socket, Option option, std::string_view what, const std::string& text) {
  try {
    socket->set(option, zmq::buffer(text.c_str(), text.size() + 1));  // with the final zero of the key
    return {};
  } catch (const zmq::error_t& error) {
    return Fail(ErrorCode::kIo, fmt::format("cannot set {}: {}", what, error.what()));
  }
}

}  // namespace

Expected<CurveKeys> MakeCurveKeys() {
  std::array<char, kKeyText + 1> public_key{}, secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
    return Fail(ErrorCode::kUnsupported, fmt::format("cannot generate keys: {}", zmq::error_t().what()));
  return CurveKeys{public_key.data(), secret_key.data()};
}

Status SaveCurveKeys(const CurveKeys& keys, const std::string& path) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0)
    return Fail(errno == EEXIST ? ErrorCode::kAlreadyExists : ErrorCode::kIo,
                fmt::format("cannot create key file {}: {}", path, std::strerror(errno)));
  const std::string text =
      fmt::format("# Keys of a tarn fleet: whoever holds this file may join it.\npublic {}\nsecret {}\n",
                  keys.public_key, keys.secret_key);
  const auto failed = [&path] {
    const int error = errno;
    unlink(path.c_str());  // a partial file would prevent a second try
    return Fail(ErrorCode::kIo, fmt::format("cannot write key file {}: {}", path, std::strerror(error)));
  };
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = write(file.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed();
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  if (fsync(file.get()) != 0) return failed();
  return {};
}

Expected<CurveKeys> LoadCurveKeys(const std::string& path) {
  const auto failed = [&path](std::string_view what) {
    const int error = errno;
    return std::unexpected(SystemError("key file " + path, what, error));
  };
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) return failed("open");
  struct stat info{};
  if (fstat(descriptor.get(), &info) != 0) return failed("stat");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("key file {}: others may read it; chmod 600 {}", path, path));
  std::string text(kKeyFileBytesMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(descriptor.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read");
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > kKeyFileBytesMax)
    return Fail(ErrorCode::kMalformed, fmt::format("key file {}: more than {} bytes", path, kKeyFileBytesMax));
  text.resize(size);
  CurveKeys keys;
  std::istringstream file(text);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::string name = line.substr(0, line.find(' '));
    const std::string key = line.size() > name.size() ? line.substr(name.size() + 1) : "";
    if ((name != "public" && name != "secret") || !IsKey(key))  // does not quote the line, which may contain a secret
      return Fail(ErrorCode::kMalformed, fmt::format("{}:{}: expected 'public' or 'secret' and a key of {} characters",
                                                     path, number, kKeyText));
    (name == "public" ? keys.public_key : keys.secret_key) = key;
  }
  std::array<char, kKeyText + 1> derived{};
  if (keys.public_key.empty() || keys.secret_key.empty() ||
      zmq_curve_public(derived.data(), keys.secret_key.c_str()) != 0 || keys.public_key != derived.data())
    return Fail(ErrorCode::kMalformed, fmt::format("key file {}: expected a public key and its secret key", path));
  return keys;
}

Status ApplyCurveKeys(const CurveKeys& keys, bool server, zmq::socket_t* socket) {
  namespace option = zmq::sockopt;
  TARN_RETURN_IF_ERROR(SetText(socket, option::curve_secretkey, "ZMQ_CURVE_SECRETKEY", keys.secret_key));
  if (!server) {
    TARN_RETURN_IF_ERROR(SetText(socket, option::curve_publickey, "ZMQ_CURVE_PUBLICKEY", keys.public_key));
    return SetText(socket, option::curve_serverkey, "ZMQ_CURVE_SERVERKEY", keys.public_key);
  }
  try {
    socket->set(option::curve_server, true);
    return {};
  } catch (const zmq::error_t& error) {
    return Fail(ErrorCode::kIo, fmt::format("cannot set ZMQ_CURVE_SERVER: {}", error.what()));
  }
}

class CurveGate::Impl {
 public:
  ~Impl() {
    const std::uint64_t one = 1;
    if (thread_.joinable()) {
      [[maybe_unused]] const auto written = write(stop_, &one, sizeof(one));
      thread_.join();
    }
    if (stop_ >= 0) close(stop_);
  }

  Status Start(zmq::context_t* context, const CurveKeys& keys) {
    TARN_CHECK(zmq_z85_decode(key_.data(), keys.public_key.c_str()) != nullptr, "keys are loaded or made");
    try {
      stop_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      if (stop_ < 0) throw zmq::error_t(errno);
      socket_ = zmq::socket_t(*context, zmq::socket_type::rep);
      socket_.set(zmq::sockopt::linger, 0);
      socket_.bind("inproc://zeromq.zap.01");
    } catch (const zmq::error_t& error) {
      return Fail(ErrorCode::kIo, fmt::format("cannot start the check of keys: {}", error.what()));
    }
    thread_ = std::thread([this] { Run(); });
    return {};
  }

 private:
  // A request: version, request id, domain, address, identity, mechanism, the key (32 bytes). The reply: version,
  // request id, status, status text, user id, metadata.
  static constexpr std::size_t kRequestParts = 7;

  void Run() {
    std::array<zmq::pollitem_t, 2> items = {{{nullptr, stop_, ZMQ_POLLIN, 0}, {socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    for (;;) {
      try {
        zmq::poll(items);
      } catch (const zmq::error_t& error) {
        if (error.num() == EINTR) continue;
        LogError("the check of keys has ended: cannot poll: {}; no further connection is admitted until a restart",
                 error.what());
        return;
      }
      if ((items[0].revents & ZMQ_POLLIN) != 0) return;
      if ((items[1].revents & ZMQ_POLLIN) != 0) Answer();
    }
  }

  void Answer() {
    std::vector<std::string> request;
    zmq::message_t part;
    for (bool more = true; more; more = part.more()) {
      if (!ReceivePart(&socket_, &part)) return;
      if (request.size() < kRequestParts + 1) request.push_back(part.to_string());
    }
    const bool admitted = request.size() == kRequestParts && request[0] == "1.0" && request[5] == "CURVE" &&
                          request[6] == std::string_view(reinterpret_cast<const char*>(key_.data()), key_.size());
    const std::string id = request.size() > 1 ? request[1] : "";
    const std::string status = admitted ? "200" : "400";
    // Version, request id, status, text, user id, metadata.
    const std::array<std::string, 6> reply = {"1.0", id, status, admitted ? "" : "unknown key", "", ""};
    try {
      for (std::size_t i = 0; i < reply.size(); ++i)
        socket_.send(zmq::buffer(reply[i]), i + 1 < reply.size() ? zmq::send_flags::dontwait | zmq::send_flags::sndmore
                                                                 : zmq::send_flags::dontwait);
    } catch (const zmq::error_t&) {
      return;  // without an answer the connection is not admitted
    }
  }

  std::array<std::uint8_t, kKeyBytes> key_{};
  zmq::socket_t socket_;
  int stop_ = -1;
  std::thread thread_;
};

namespace {

// Without a working handler ZeroMQ admits every peer that knows the public key. So a connection with a random key must
// fail.
Status CheckUnknownKeyIsRejected(zmq::context_t* context, const CurveKeys& keys) {
  const auto failed = [](const Status& status) {
    return Fail(status.error().code, "cannot check that unknown keys are rejected: " + status.error().message);
  };
  const SocketOptions options{.high_water_mark = 4, .reconnect_ms = 100};
  Expected<Socket> server = Socket::Open(context, zmq::socket_type::router, options);
  Expected<Socket> client = Socket::Open(context, zmq::socket_type::dealer, options);
  Expected<CurveKeys> unknown_keys = MakeCurveKeys();
  if (!server) return failed(std::unexpected(server.error()));
  if (!client) return failed(std::unexpected(client.error()));
  if (!unknown_keys) return failed(std::unexpected(unknown_keys.error()));
  if (Status s = ApplyCurveKeys(keys, true, &server->raw()); !s) return failed(s);
  if (Status s = ApplyCurveKeys(*unknown_keys, false, &client->raw()); !s) return failed(s);
  if (Status s = SetText(&client->raw(), zmq::sockopt::curve_serverkey, "ZMQ_CURVE_SERVERKEY", keys.public_key); !s)
    return failed(s);
  ConnectionWatch monitor;
  if (Status s = monitor.Watch(context, &server->raw()); !s) return failed(s);
  if (Status s = server->Bind("tcp://127.0.0.1:*"); !s) return failed(s);
  if (Status s = client->Connect(server->LastEndpoint()); !s) return failed(s);

  const std::vector<Buffer> probe = {Buffer::Copy("x", 1)};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kRejectionMsMax);
  Parts parts;
  while (std::chrono::steady_clock::now() < end) {
    if (monitor.Take() > 0) return {};
    client->Send({}, probe);
    if (server->Receive(&parts))
      return Fail(ErrorCode::kInternal, "a connection with an unknown key was admitted: authentication does not work");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return Fail(ErrorCode::kInternal, "a connection with an unknown key was not rejected: authentication does not work");
}

}  // namespace

CurveGate::CurveGate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CurveGate::~CurveGate() = default;

Expected<std::unique_ptr<CurveGate>> CurveGate::Start(zmq::context_t* context, const CurveKeys& keys) {
  auto impl = std::make_unique<Impl>();
  TARN_RETURN_IF_ERROR(impl->Start(context, keys));
  TARN_RETURN_IF_ERROR(CheckUnknownKeyIsRejected(context, keys));
  return std::unique_ptr<CurveGate>(new CurveGate(std::move(impl)));
}

}  // namespace tarn::net
