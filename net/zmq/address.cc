#include "net/zmq/address.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string_view>

namespace tarn::net {
namespace {

// Whether the endpoint is tcp with a valid port, or inproc. Checks the port because ZeroMQ reads "99999" as 34463.
bool IsAddress(const std::string& endpoint) {
  if (endpoint.starts_with("inproc://")) return true;
  if (!IsTcp(endpoint)) return false;
  if (endpoint.ends_with(":*")) return true;
  const std::string_view digits = std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
  std::uint32_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port <= 65535;
}

}  // namespace

Expected<std::string> ZmqAddress(const std::string& endpoint, bool open, LocalFolders* folders) {
  if (IsIpc(endpoint)) return folders->Reach(endpoint, !open);
  if (!IsAddress(endpoint))
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected tcp://HOST:PORT with a port up to 65535", endpoint));
  if (open || !IsTcp(endpoint)) return endpoint;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: any user of the host can connect to a TCP address: expected keys (--keys FILE, made by "
                          "tarn-keys), ipc:// in a folder of mode 0700, or --insecure",
                          endpoint));
}

}  // namespace tarn::net
