#include "net/http/status_server.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "core/log.h"
#include "net/advertise.h"
#include "net/http/access.h"
#include "net/http/process_metrics.h"
#include "net/http/prometheus_text.h"

namespace tarn::net {

// The answers of the routes. Runs on the context's thread, except AddFeed.
class StatusServer::Pages {
 public:
  explicit Pages(const StatusServerOptions& options) : run_(options.run) {
    process_.role = options.role;
    process_.rank = options.rank;
  }

  std::shared_ptr<StatusFeed> AddFeed() {
    const std::lock_guard lock(mutex_);
    return feeds_.emplace_back(std::make_shared<StatusFeed>());
  }

  HttpResponse Ready() {
    const auto feeds = Feeds();
    std::size_t ready = 0;
    for (const auto& feed : feeds) {
      const StatusReport* report = feed->Latest();
      ready += report != nullptr && report->ready ? 1 : 0;
    }
    if (ready == feeds.size()) return {.body = "ready\n"};
    return {.status = 503, .body = fmt::format("not ready: {} of {} take part in the run\n", ready, feeds.size())};
  }

  HttpResponse Metrics() {
    process_.metrics = ProcessMetrics(started_);
    std::vector<const StatusReport*> reports = {&process_};
    const auto feeds = Feeds();
    for (const auto& feed : feeds)
      if (const StatusReport* report = feed->Latest()) reports.push_back(report);
    return {.content_type = kPrometheusContentType, .body = PrometheusText(run_, reports)};
  }

 private:
  std::vector<std::shared_ptr<StatusFeed>> Feeds() {
    const std::lock_guard lock(mutex_);
    return feeds_;
  }

  const std::string run_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  StatusReport process_;
  std::mutex mutex_;  // protects feeds_
  std::vector<std::shared_ptr<StatusFeed>> feeds_;
};

namespace {

// The server's endpoint as other nodes must use it. One that listens on a certain address, such as that of loopback, is
// reachable only there.
Expected<HttpEndpoint> AdvertisedHttpEndpoint(const HttpEndpoint& at, const StatusServerOptions& options) {
  constexpr std::string_view kScheme = "tcp://";
  const std::string peer = options.peer.starts_with(kScheme) ? options.peer : std::string();
  const std::string bound = std::string(kScheme) + ToString(at);
  if (!IsWildcard(bound)) return at;
  const auto advertised = AdvertisedEndpoint(bound, options.advertise, peer);
  if (!advertised) return std::unexpected(advertised.error());
  return ParseHttpEndpoint(std::string_view(*advertised).substr(kScheme.size()));
}

Expected<HttpServerOptions> ServerOptionsOf(const StatusServerOptions& options) {
  HttpServerOptions server;
  server.insecure = options.insecure;
  if (!options.http.empty()) {
    auto listen = ParseHttpEndpoint(options.http);
    if (!listen) return std::unexpected(listen.error());
    server.listen = *std::move(listen);
  }
  if (!options.advertise.empty()) server.names.push_back(options.advertise);
  if (!options.token_file.empty()) {
    auto token = ReadHttpToken(options.token_file);
    if (!token) return std::unexpected(token.error());
    server.token = *std::move(token);
  }
  return server;
}

}  // namespace

Expected<std::unique_ptr<StatusServer>> StatusServer::Start(ProcessContext* process,
                                                            const StatusServerOptions& options) {
  auto pages = std::make_shared<Pages>(options);
  const auto without_server = [&] { return std::unique_ptr<StatusServer>(new StatusServer(pages, nullptr, "")); };
  if (options.http == "none") return without_server();
  auto server_options = ServerOptionsOf(options);
  if (!server_options) return std::unexpected(server_options.error());
  HttpRoutes routes;
  routes["/healthz"] = [] { return HttpResponse{.body = "ok\n"}; };
  routes["/readyz"] = [pages] { return pages->Ready(); };
  routes["/metrics"] = [pages] { return pages->Metrics(); };
  auto server = HttpServer::Start(&process->io(), *std::move(server_options), std::move(routes));
  if (!server && options.http.empty()) {
    LogWarning("continuing without /healthz, /readyz and /metrics: {}", server.error().message);
    return without_server();
  }
  if (!server) return std::unexpected(server.error());
  const auto advertised = AdvertisedHttpEndpoint((*server)->endpoint(), options);
  if (!advertised) return std::unexpected(advertised.error());
  std::string url = "http://" + ToString(*advertised);
  LogInfo("HTTP server: serves /healthz, /readyz and /metrics at {}", url);
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(pages), *std::move(server), std::move(url)));
}

StatusServer::StatusServer(std::shared_ptr<Pages> pages, std::unique_ptr<HttpServer> server, std::string url)
    : pages_(std::move(pages)), server_(std::move(server)), url_(std::move(url)) {}

StatusServer::~StatusServer() = default;

std::shared_ptr<StatusFeed> StatusServer::AddFeed() { return pages_->AddFeed(); }

}  // namespace tarn::net
