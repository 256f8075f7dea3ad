#include "server/shard_sockets.h"

#include <fmt/format.h>

#include <charconv>

#include "core/log.h"
#include "net/advertise.h"
#include "net/local_endpoint.h"

namespace tarn::server {

ShardSockets::ShardSockets(net::ZmqContext* context, const ServerOptions& options, std::uint32_t index)
    : context_(context),
      options_(options),
      index_(index),
      sockets_(context, {.insecure = options.insecure, .shm = options.shm, .lend_payloads = true}) {
  if (options.slow_network) slow_.emplace(&sockets_, options.slow_network(shard()));
}

Expected<std::string> ShardSockets::Open() {
  const bool local = options_.bind == net::kAnyLocalEndpoint;
  const auto wanted =
      local ? context_->folders().Make(options_.run_dir, LocalName()) : ShardEndpoint(options_.bind, index_);
  if (!wanted) return std::unexpected(wanted.error());
  const auto endpoint = transport().Bind(*wanted);
  if (!endpoint) return std::unexpected(endpoint.error());
  auto advertised = net::AdvertisedEndpoint(*endpoint, options_.advertise, options_.scheduler);
  if (!advertised) return std::unexpected(advertised.error());
  TARN_RETURN_IF_ERROR(transport().Connect(kSchedulerPeer, options_.scheduler));
  LogInfo("shard {}: bound to {}, reached at {}, scheduler at {}", shard().value, *endpoint, *advertised,
          options_.scheduler);
  return advertised;
}

// Unique per start of a server: one that was killed leaves its socket.
std::string ShardSockets::LocalName() const {
  return fmt::format("shard-{}-{:08x}", shard().value, static_cast<std::uint32_t>(options_.nonces[index_]));
}

constexpr std::uint32_t kPortMax = 65535;

Expected<std::string> ShardEndpoint(const std::string& bind, std::uint32_t index) {
  const std::size_t colon = bind.rfind(':');
  const std::string port = colon == std::string::npos ? "" : bind.substr(colon + 1);
  if (bind.starts_with("ipc://")) return index == 0 ? bind : fmt::format("{}-{}", bind, index);
  if (port == "*" || !bind.starts_with("tcp://")) return bind;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number > kPortMax)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--bind {}: expected tcp://HOST:PORT or tcp://HOST:*", bind));
  if (number + index > kPortMax)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--bind {}: shard {} of this server would have port {}, expected at most {}", bind, index,
                            number + index, kPortMax));
  return fmt::format("{}:{}", bind.substr(0, colon), number == 0 ? 0 : number + index);
}

}  // namespace tarn::server
