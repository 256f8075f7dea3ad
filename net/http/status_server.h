// The HTTP server of a program of a fleet. GET
//
//   /healthz  200 while the process runs
//   /readyz   200 once all of the process's state machines take part in the run, else 503
//   /metrics  their metrics and the process's, for Prometheus
//
// Each state machine's loop puts reports into a feed, from which requests are answered on the context's thread: no
// loop ever waits for a client.
//
//   auto status = StatusServer::Start(process, options);
//   options.feed = (*status)->AddFeed();            // for the loop
//   options.http = (*status)->url();                // for others
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
  std::string token_file;  // of a token that requests must bring; empty: none
  bool insecure = false;   // other machines may read it without a token
  std::string advertise;   // the host under which others reach it; empty: where it listens (net/advertise.h)
  std::string peer;        // the scheduler's endpoint, to find the interface that leads there, if it is tcp://
  std::string run;         // label of metrics: which run
  std::string role, rank;  // labels of the process's own metrics
};

class StatusServer {
 public:
  // A server that nobody asked for (`http` is empty) and that cannot listen is done without, with a warning. Errors as
  // HttpServer::Start, and of the token's file. The context outlives the server.
  static Expected<std::unique_ptr<StatusServer>> Start(ProcessContext* process, const StatusServerOptions& options);
  ~StatusServer();

  // A feed whose reports are shown from now on; one for each state machine of the process. It may outlive the server.
  // Any thread.
  std::shared_ptr<StatusFeed> AddFeed();

  // "http://HOST:PORT" as others reach it; empty if there is no server.
  const std::string& url() const { return url_; }

 private:
  class Pages;
  StatusServer(std::shared_ptr<Pages> pages, std::unique_ptr<HttpServer> server, std::string url);

  std::shared_ptr<Pages> pages_;
  std::unique_ptr<HttpServer> server_;  // null: none
  std::string url_;
};

}  // namespace tarn::net
