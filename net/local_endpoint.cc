#include "net/local_endpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "core/file.h"
#include "core/limits.h"
#include "core/utf8.h"

namespace tarn::net {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr std::string_view kSockets = "/sockets";
constexpr std::size_t kAddressFileBytesMax = 4096;
constexpr std::chrono::milliseconds kPollPeriod(20);
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

std::string PathIn(int folder, std::string_view name) { return fmt::format("/proc/self/fd/{}/{}", folder, name); }

Descriptor OpenFolder(const std::string& path) {
  return Descriptor(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

struct Address {
  explicit Address(const std::string& path) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
};

// connect() on this socket never blocks; it fails with EAGAIN if the listener's queue is full.
Descriptor NewSocket() { return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// Whether the folder can hold sockets; some shared file systems cannot. Creates and removes a socket.
bool SupportsSockets(int folder, const std::string& name) {
  const std::string path = PathIn(folder, name);
  const Address address(path);
  const Descriptor probe = NewSocket();
  unlink(path.c_str());
  if (probe.get() < 0 || bind(probe.get(), address.get(), sizeof(address.address)) != 0) return false;
  unlink(path.c_str());
  return true;
}

Status CheckPrivate(int folder, const std::string& path) {
  struct stat info{};
  if (fstat(folder, &info) != 0) return std::unexpected(SystemError(path, "stat this folder", errno));
  if (info.st_uid != geteuid())
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: this folder of sockets belongs to another user ({}), expected this user ({})", path,
                            info.st_uid, geteuid()));
  if ((info.st_mode & kOthers) == 0) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: this folder of sockets has mode {:04o}, expected 0700 so that other users cannot connect: "
                  "chmod 700 {}",
                  path, info.st_mode & 07777, path));
}

std::string AsAbsolute(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace

std::string DefaultBind(bool has_keys, bool insecure) {
  return has_keys || insecure ? "tcp://127.0.0.1:*" : kAnyLocalEndpoint;
}

std::string AddressFile(const std::string& run_dir) { return run_dir + "/scheduler.address"; }

Expected<std::string> SchedulerEndpoint(const std::string& text, double seconds, const std::function<bool()>& stop) {
  if (text.find("://") != std::string::npos) return text;
  std::error_code ignored;
  if (text.empty() || (text.find(':') != std::string::npos && !std::filesystem::is_directory(text, ignored)))
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("scheduler '{}': expected tcp://HOST:PORT, ipc://PATH or the folder of a run", text));
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    auto found = ReadFile(AddressFile(text), kAddressFileBytesMax);
    if (found && found->ends_with('\n')) return found->substr(0, found->find('\n'));
    if (!found && found.error().code != ErrorCode::kNotFound) return std::unexpected(found.error());
    if (stop && stop())
      return Fail(ErrorCode::kCancelled,
                  fmt::format("{}: terminated by a signal while no scheduler was running here", text));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() >= seconds)
      return Fail(ErrorCode::kTimeout,
                  fmt::format("{}: no scheduler runs here: expected {}, which exists while a scheduler "
                              "runs, or an endpoint tcp://HOST:PORT",
                              text, AddressFile(text)));
    std::this_thread::sleep_for(kPollPeriod);
  }
}

Listener FindListener(const std::string& path) {
  const Address address(path);
  const Descriptor probe = NewSocket();
  if (probe.get() < 0) return Listener::kUnknown;
  if (connect(probe.get(), address.get(), sizeof(address.address)) == 0 || errno == EAGAIN) return Listener::kThere;
  return errno == ECONNREFUSED || errno == ENOENT ? Listener::kNone : Listener::kUnknown;
}

void RemoveSockets(const std::string& run_dir, bool stale_only) {
  const std::string path = run_dir + std::string(kSockets);
  const Descriptor folder = OpenFolder(path);
  if (folder.get() < 0 || !CheckPrivate(folder.get(), path)) return;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry(path, error); !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_socket(ignored)) continue;
    const std::string name = PathIn(folder.get(), entry->path().filename().string());
    if (!stale_only || FindListener(name) == Listener::kNone) unlink(name.c_str());
  }
  if (!stale_only) rmdir(path.c_str());
}

LocalFolders::~LocalFolders() {
  for (const std::string& path : sockets_) unlink(path.c_str());
  for (const std::string& path : temporary_) rmdir(path.c_str());
}

Expected<std::string> LocalFolders::Make(const std::string& run_dir, const std::string& name) {
  const std::string path = AsAbsolute(run_dir + std::string(kSockets));
  // Otherwise no message can have the endpoint (Join.endpoint in schemas/wire.fbs).
  if (!run_dir.empty() && kIpc.size() + path.size() + 1 + name.size() <= limits::kEndpointBytesMax && IsUtf8(path)) {
    if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
      return std::unexpected(SystemError(path, "create this folder", errno));
    const Descriptor folder = OpenFolder(path);
    if (folder.get() < 0) return std::unexpected(SystemError(path, "open this folder", errno));
    TARN_RETURN_IF_ERROR(CheckPrivate(folder.get(), path));
    const std::lock_guard lock(mutex_);
    if (SupportsSockets(folder.get(), name)) return RegisterSocket(path, name);
  }
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  std::string made = (error ? std::filesystem::path("/tmp") : parent) / "tarn-XXXXXX";
  if (mkdtemp(made.data()) == nullptr) return std::unexpected(SystemError(made, "create this folder", errno));
  const std::lock_guard lock(mutex_);
  temporary_.push_back(made);
  return RegisterSocket(made, name);
}

std::string LocalFolders::RegisterSocket(const std::string& folder, const std::string& name) {
  sockets_.push_back(folder + "/" + name);
  return std::string(kIpc) + sockets_.back();
}

Expected<std::string> LocalFolders::Reach(const std::string& endpoint, bool private_only) {
  const std::size_t slash = endpoint.rfind('/');
  const std::string name = endpoint.substr(slash + 1);
  if (!endpoint.starts_with(kIpc) || slash < kIpc.size() || name.empty())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: expected ipc:///FOLDER/NAME", endpoint));
  const std::string path = endpoint.substr(kIpc.size(), std::max<std::size_t>(1, slash - kIpc.size()));
  Folder folder{.file = OpenFolder(path)};
  if (folder.file.get() < 0) {
    if (errno == EACCES)
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: this user may not open this folder of sockets, expected a folder of this user", path));
    return std::unexpected(SystemError(path, "open this folder of sockets", errno));
  }
  if (private_only) TARN_RETURN_IF_ERROR(CheckPrivate(folder.file.get(), path));
  struct stat info{};
  if (fstat(folder.file.get(), &info) != 0) return std::unexpected(SystemError(path, "stat this folder", errno));
  folder.device = info.st_dev, folder.inode = info.st_ino;
  const std::lock_guard lock(mutex_);
  for (const Folder& known : open_)
    if (known.device == folder.device && known.inode == folder.inode)
      return std::string(kIpc) + PathIn(known.file.get(), name);
  open_.push_back(std::move(folder));
  return std::string(kIpc) + PathIn(open_.back().file.get(), name);
}

}  // namespace tarn::net
