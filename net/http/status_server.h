// The HTTP server of a program of a fleet. It answers GET and HEAD of
//
//   /healthz  200 while the process runs
//   /readyz   200 when all state machines of the process take part in the run, else 503
//   /metrics  their metrics and those of the process, for Prometheus
//
// Each state machine's loop puts reports into a feed; requests are answered from it on the context's thread. So a loop
// never waits for a client.
//
//   auto status = StatusServer::Start(process, options);
//   loop_options.feed = (*status)->AddFeed();       // the loop puts its reports into it
//   loop_options.http = (*status)->url();           // the loop publishes it to other nodes
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/metrics/status_report.h"
#include "core/process_context.h"
#include "net/http/http_server.h"

namespace tarn::net {

struct StatusServerOptions {
  std::string http;        // HOST:PORT, or "none"; empty: 127.0.0.1 and a port that the system chooses
  std::string token_file;  // file with a token that requests must have; empty: none
  bool insecure = false;   // an address that other machines can reach needs no token
  std::string advertise;   // host in the published URL; empty: that of the listening address (net/advertise.h)
  std::string peer;        // the scheduler's endpoint; if tcp://, determines the published interface
  std::string run;         // label of metrics: which run
  std::string role, rank;  // labels of the process's own metrics
};

class StatusServer {
 public:
  // If `http` is empty and listening fails, logs a warning and returns an object without a server. Other errors as of
  // ParseHttpEndpoint, ReadHttpToken, HttpServer::Start and AdvertisedEndpoint. The context outlives the server.
  static Expected<std::unique_ptr<StatusServer>> Start(ProcessContext* process, const StatusServerOptions& options);
  ~StatusServer();

  // Adds a feed whose reports are served from now on; one per state machine of the process. It may outlive the server.
  // Any thread.
  std::shared_ptr<StatusFeed> AddFeed();

  // "http://HOST:PORT" for other nodes; empty if there is no server.
  const std::string& url() const { return url_; }

 private:
  class Pages;
  StatusServer(std::shared_ptr<Pages> pages, std::unique_ptr<HttpServer> server, std::string url);

  std::shared_ptr<Pages> pages_;
  std::unique_ptr<HttpServer> server_;  // null: none
  std::string url_;
};

}  // namespace tarn::net
