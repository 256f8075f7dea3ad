#include "net/shm_door.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "core/file.h"
#include "core/log.h"

namespace tarn::net {
namespace {

constexpr std::size_t kTicketBytes = 32;
constexpr char kHere = 'm';  // sent with the memory

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

bool IsOurUser(int socket) {
  ucred who{};
  socklen_t size = sizeof(who);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

// A message of one byte that may carry a file.
struct FileMessage {
  FileMessage() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  FileMessage(const FileMessage&) = delete;
  FileMessage& operator=(const FileMessage&) = delete;

  char here = kHere;
  iovec bytes{&here, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

bool SendFile(int socket, int file) {
  FileMessage message;
  cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &file, sizeof(file));
  return sendmsg(socket, &message.header, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

// Below 0 in `file`: the message had none. Returns what recvmsg does.
ssize_t ReceiveFile(int socket, Descriptor* file) {
  FileMessage message;
  const ssize_t got = recvmsg(socket, &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got <= 0) return got;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message.header); part != nullptr; part = CMSG_NXTHDR(&message.header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    // The buffer has room for a second one.
    for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(part) + at, sizeof(received));
      *file = Descriptor(received);
    }
  }
  return got;
}

bool IsLater() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

Buffer EncodeShmWord(const ShmWord& word) {
  const std::string text = fmt::format("{} {}", word.socket, word.ticket);
  const Prefix prefix{.magic = kMagic,
                      .version = static_cast<std::uint8_t>(limits::kProtocolVersion),
                      .kind = static_cast<std::uint8_t>(FrameKind::kShm),
                      .reserved = 0,
                      .header_bytes = static_cast<std::uint32_t>(text.size()),
                      .keys_bytes = static_cast<std::uint32_t>(word.kind)};
  Buffer frame = Buffer::Allocate(sizeof(prefix) + text.size());
  std::memcpy(frame.data(), &prefix, sizeof(prefix));
  std::memcpy(frame.data() + sizeof(prefix), text.data(), text.size());
  return frame;
}

std::optional<Expected<ShmWord>> DecodeShmWord(const FrameView& frame) {
  Prefix prefix;
  if (frame.size < sizeof(prefix)) return std::nullopt;
  std::memcpy(&prefix, frame.data, sizeof(prefix));
  if (prefix.magic != kMagic || prefix.version != limits::kProtocolVersion ||
      prefix.kind != static_cast<std::uint8_t>(FrameKind::kShm))
    return std::nullopt;
  const std::string_view text(reinterpret_cast<const char*>(frame.data) + sizeof(prefix), frame.size - sizeof(prefix));
  const auto malformed = [](const std::string& what) -> Expected<ShmWord> {
    return Fail(ErrorCode::kMalformed, "shared memory: " + what);
  };
  if (prefix.header_bytes != text.size())
    return malformed(fmt::format("prefix.header_bytes: {}, expected {}", prefix.header_bytes, text.size()));
  if (prefix.keys_bytes < 1 || prefix.keys_bytes > static_cast<std::uint32_t>(ShmWord::Kind::kThrough))
    return malformed(fmt::format("a word of kind {}, expected 1 to 4", prefix.keys_bytes));
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || space > kShmTextBytesMax || text.size() - space - 1 > kShmTextBytesMax)
    return malformed(fmt::format("two texts of up to {} bytes expected", kShmTextBytesMax));
  return ShmWord{.kind = static_cast<ShmWord::Kind>(prefix.keys_bytes),
                 .socket = std::string(text.substr(0, space)),
                 .ticket = std::string(text.substr(space + 1))};
}

std::string BootId() {
  auto text = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  if (!text) return {};
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

Expected<ShmDoor> ShmDoor::Open(std::size_t ring_bytes) {
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::string name = "tarn-" + RandomText();
  const Address address(name);
  if (listener.get() < 0 || bind(listener.get(), address.get(), address.size) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0)
    return Fail(ErrorCode::kIo, fmt::format("shared memory: cannot listen: {}", std::strerror(errno)));
  return ShmDoor(std::move(listener), std::move(name), ring_bytes);
}

std::string ShmDoor::TicketFor(Peer peer) {
  if (tickets_.size() == limits::kShmTicketsMax) tickets_.pop_front();
  return tickets_.emplace_back(RandomText(), peer).first;
}

void ShmDoor::AddFiles(std::vector<pollfd>* files) const {
  if (listens_) files->push_back({listener_.get(), POLLIN, 0});
  for (const Descriptor& guest : guests_) files->push_back({guest.get(), POLLIN, 0});
}

// Below 0: no connection is pending, or none can be accepted.
Descriptor ShmDoor::Accept() {
  Descriptor guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (guest.get() < 0) listens_ = errno != EMFILE && errno != ENFILE;
  return guest;
}

std::optional<Peer> ShmDoor::Redeem(const std::string& ticket) {
  for (auto it = tickets_.begin(); it != tickets_.end(); ++it) {
    if (it->first != ticket) continue;
    const Peer peer = it->second;
    tickets_.erase(it);
    return peer;
  }
  return std::nullopt;
}

void ShmDoor::Take(std::size_t most, const std::function<void(Peer, ShmLane)>& welcome) {
  std::erase_if(guests_, [&](Descriptor& guest) { return Serve(&guest, &most, welcome); });
  for (int arrivals = 0; arrivals < kArrivalsMax; ++arrivals) {
    Descriptor guest = Accept();
    if (guest.get() < 0) return;
    if (!IsOurUser(guest.get())) {
      static LogLimiter limiter;
      LogWarning(limiter, "shared memory: refused a process of another user");
      continue;
    }
    // Most connections have sent their ticket already. A rejected client tries again.
    if (!Serve(&guest, &most, welcome) && guests_.size() < limits::kShmGuestsMax) guests_.push_back(std::move(guest));
  }
}

// Whether the guest is done with, one way or the other.
bool ShmDoor::Serve(Descriptor* guest, std::size_t* room, const std::function<void(Peer, ShmLane)>& welcome) {
  std::string ticket(kTicketBytes, '\0');
  const ssize_t got = recv(guest->get(), ticket.data(), ticket.size(), MSG_DONTWAIT);
  if (got < 0 && IsLater()) return false;
  const auto peer = got == static_cast<ssize_t>(kTicketBytes) ? Redeem(ticket) : std::nullopt;
  if (!peer || *room == 0) return true;
  auto segment = ShmSegment::Create(ring_bytes_);
  if (!segment) {
    static LogLimiter limiter;
    LogWarning(limiter, "{}; going on over the network", segment.error().message);
    return true;
  }
  if (!SendFile(guest->get(), segment->file())) return true;
  segment->CloseFile();
  --*room;
  welcome(*peer, ShmLane(ShmSide::kServer, std::move(*segment), std::move(*guest)));
  return true;
}

Expected<ShmGuest> ShmGuest::Knock(const std::string& name, const std::string& ticket) {
  Descriptor guest(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address(name);
  if (guest.get() < 0 || connect(guest.get(), address.get(), address.size) != 0)
    return Fail(ErrorCode::kUnavailable, fmt::format("cannot be reached: {}", std::strerror(errno)));
  if (!IsOurUser(guest.get())) return Fail(ErrorCode::kUnavailable, "is another user's");
  if (send(guest.get(), ticket.data(), ticket.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    return Fail(ErrorCode::kUnavailable, fmt::format("takes no ticket: {}", std::strerror(errno)));
  return ShmGuest(std::move(guest));
}

std::optional<Expected<ShmLane>> ShmGuest::Take() {
  Descriptor file;
  const ssize_t got = ReceiveFile(socket_.get(), &file);
  if (got < 0 && IsLater()) return std::nullopt;
  if (got <= 0 || file.get() < 0) return Fail(ErrorCode::kUnavailable, "gave no memory");
  auto segment = ShmSegment::Map(std::move(file));
  if (!segment) return std::unexpected(segment.error());
  segment->CloseFile();
  return ShmLane(ShmSide::kClient, std::move(*segment), std::move(socket_));
}

}  // namespace tarn::net
