#include "net/shm_handshake.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>

#include "core/file.h"
#include "core/log.h"
#include "net/wake_file.h"

namespace tarn::net {
namespace {

constexpr std::size_t kTicketBytes = 32;
constexpr std::size_t kFilesMax = 2;

std::string RandomText() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// A name in the abstract namespace, which exists in this host's network namespace until the process ends.
struct Address {
  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), bytes);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t size = 0;
};

bool IsSameUser(int socket) {
  ucred who{};
  socklen_t size = sizeof(who);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

// A message that may carry files.
struct FileMessage {
  explicit FileMessage(std::span<char> text) : bytes{text.data(), text.size()} {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  FileMessage(const FileMessage&) = delete;
  FileMessage& operator=(const FileMessage&) = delete;

  iovec bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesMax * sizeof(int))> control{};
  msghdr header{};
};

bool SendFiles(int socket, std::string text, std::span<const int> files) {
  FileMessage message(text);
  message.header.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(rights), files.data(), files.size_bytes());
  return sendmsg(socket, &message.header, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Receives a message and its first files; closes further ones. Files that it does not carry stay unset. Returns the
// result of recvmsg.
ssize_t ReceiveFiles(int socket, std::span<char> text, std::span<Descriptor> files) {
  FileMessage message(text);
  const ssize_t got = recvmsg(socket, &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  std::size_t n = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message.header); part != nullptr; part = CMSG_NXTHDR(&message.header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(part) + at, sizeof(received));
      Descriptor file(received);
      if (n < files.size()) files[n++] = std::move(file);
    }
  }
  return got;
}

bool IsTransient() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

Buffer EncodeShmHandshake(const ShmHandshake& message) {
  const std::string text = fmt::format("{} {}", message.socket, message.ticket);
  const Prefix prefix{.magic = kMagic,
                      .version = static_cast<std::uint8_t>(limits::kProtocolVersion),
                      .kind = static_cast<std::uint8_t>(FrameKind::kShm),
                      .reserved = 0,
                      .header_bytes = static_cast<std::uint32_t>(text.size()),
                      .keys_bytes = static_cast<std::uint32_t>(message.kind)};
  Buffer frame = Buffer::Allocate(sizeof(prefix) + text.size());
  std::memcpy(frame.data(), &prefix, sizeof(prefix));
  std::memcpy(frame.data() + sizeof(prefix), text.data(), text.size());
  return frame;
}

std::optional<Expected<ShmHandshake>> DecodeShmHandshake(const FrameView& frame) {
  Prefix prefix;
  if (frame.size < sizeof(prefix)) return std::nullopt;
  std::memcpy(&prefix, frame.data, sizeof(prefix));
  if (prefix.magic != kMagic || prefix.version != limits::kProtocolVersion ||
      prefix.kind != static_cast<std::uint8_t>(FrameKind::kShm))
    return std::nullopt;
  const std::string_view text(reinterpret_cast<const char*>(frame.data) + sizeof(prefix), frame.size - sizeof(prefix));
  const auto malformed = [](const std::string& what) -> Expected<ShmHandshake> {
    return Fail(ErrorCode::kMalformed, "shared memory: " + what);
  };
  if (prefix.header_bytes != text.size())
    return malformed(fmt::format("prefix.header_bytes: {}, expected {}", prefix.header_bytes, text.size()));
  if (prefix.keys_bytes < 1 || prefix.keys_bytes > static_cast<std::uint32_t>(ShmHandshake::Kind::kSwitch))
    return malformed(fmt::format("handshake of kind {}, expected 1 to 4", prefix.keys_bytes));
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || space > kShmTextBytesMax || text.size() - space - 1 > kShmTextBytesMax)
    return malformed(fmt::format("handshake: expected two texts of at most {} bytes", kShmTextBytesMax));
  return ShmHandshake{.kind = static_cast<ShmHandshake::Kind>(prefix.keys_bytes),
                      .socket = std::string(text.substr(0, space)),
                      .ticket = std::string(text.substr(space + 1))};
}

std::string BootId() {
  auto text = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  if (!text) return {};
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

Expected<ShmListener> ShmListener::Open(std::size_t ring_bytes, int wake_file) {
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::string name = "tarn-" + RandomText();
  const Address address(name);
  if (listener.get() < 0 || bind(listener.get(), address.get(), address.size) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0)
    return Fail(ErrorCode::kIo, fmt::format("shared memory: cannot listen: {}", std::strerror(errno)));
  return ShmListener(std::move(listener), std::move(name), ring_bytes, wake_file);
}

std::string ShmListener::TicketFor(Peer peer) {
  if (tickets_.size() == limits::kShmTicketsMax) tickets_.pop_front();
  return tickets_.emplace_back(RandomText(), peer).first;
}

void ShmListener::AddFiles(std::vector<pollfd>* files) const {
  if (listens_) files->push_back({listener_.get(), POLLIN, 0});
  for (const Descriptor& connection : connections_) files->push_back({connection.get(), POLLIN, 0});
}

// Below 0: no connection is pending, or none can be accepted.
Descriptor ShmListener::Accept() {
  Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.get() < 0) listens_ = errno != EMFILE && errno != ENFILE;
  return connection;
}

std::optional<Peer> ShmListener::Redeem(const std::string& ticket) {
  for (auto it = tickets_.begin(); it != tickets_.end(); ++it) {
    if (it->first != ticket) continue;
    const Peer peer = it->second;
    tickets_.erase(it);
    return peer;
  }
  return std::nullopt;
}

void ShmListener::Take(std::size_t most, const std::function<void(Peer, ShmChannel)>& accept) {
  std::erase_if(connections_, [&](Descriptor& connection) { return Serve(&connection, &most, accept); });
  for (int arrivals = 0; arrivals < kArrivalsMax; ++arrivals) {
    Descriptor connection = Accept();
    if (connection.get() < 0) return;
    if (!IsSameUser(connection.get())) {
      static LogLimiter limiter;
      LogWarning(limiter, "shared memory: refused a process of another user");
      continue;
    }
    // Most connections have sent their ticket already. A rejected client tries again.
    if (!Serve(&connection, &most, accept) && connections_.size() < limits::kShmUnidentifiedMax)
      connections_.push_back(std::move(connection));
  }
}

// Returns false if the ticket has not arrived; else the connection can be removed.
bool ShmListener::Serve(Descriptor* connection, std::size_t* room,
                        const std::function<void(Peer, ShmChannel)>& accept) {
  std::string ticket(kTicketBytes, '\0');
  Descriptor wake;
  const ssize_t got = ReceiveFiles(connection->get(), ticket, {&wake, 1});
  if (got < 0 && IsTransient()) return false;
  const bool complete = got == static_cast<ssize_t>(kTicketBytes) && IsWakeFile(wake.get());
  const auto peer = complete ? Redeem(ticket) : std::nullopt;
  if (!peer || *room == 0) return true;
  auto segment = ShmSegment::Create(ring_bytes_);
  if (!segment) {
    static LogLimiter limiter;
    LogWarning(limiter, "{}; continuing over the network", segment.error().message);
    return true;
  }
  // Files can only be sent along with at least one byte.
  if (!SendFiles(connection->get(), "m", std::array{segment->file(), wake_file_})) return true;
  segment->CloseFile();
  --*room;
  accept(*peer, ShmChannel(ShmSide::kServer, std::move(*segment), std::move(*connection), std::move(wake)));
  return true;
}

Expected<ShmConnector> ShmConnector::Connect(const std::string& name, const std::string& ticket, int wake_file) {
  Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(name);
  if (connection.get() < 0 || connect(connection.get(), address.get(), address.size) != 0)
    return Fail(ErrorCode::kUnavailable, fmt::format("cannot be reached: {}", std::strerror(errno)));
  if (!IsSameUser(connection.get())) return Fail(ErrorCode::kUnavailable, "belongs to another user");
  if (!SendFiles(connection.get(), ticket, {&wake_file, 1}))
    return Fail(ErrorCode::kUnavailable, fmt::format("accepts no ticket: {}", std::strerror(errno)));
  return ShmConnector(std::move(connection));
}

std::optional<Expected<ShmChannel>> ShmConnector::Take() {
  char filler = 0;
  std::array<Descriptor, 2> files;  // the segment, the server's wake file
  const ssize_t got = ReceiveFiles(socket_.get(), {&filler, 1}, files);
  if (got < 0 && IsTransient()) return std::nullopt;
  if (got <= 0 || files[0].get() < 0) return Fail(ErrorCode::kUnavailable, "sent no memory");
  if (!IsWakeFile(files[1].get())) return Fail(ErrorCode::kUnavailable, "sent no wake file");
  auto segment = ShmSegment::Map(std::move(files[0]));
  if (!segment) return std::unexpected(segment.error());
  segment->CloseFile();
  return ShmChannel(ShmSide::kClient, std::move(*segment), std::move(socket_), std::move(files[1]));
}

}  // namespace tarn::net
