// The flags of a program for its status server.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "net/http/status_server.h"

namespace tarn::net {

inline void AddStatusFlags(CLI::App* app, StatusServerOptions* options) {
  app->add_option(
      "--http", options->http,
      "address of the HTTP server for /healthz, /readyz and /metrics: HOST:PORT (port 0 or *: a free port), or "
      "'none'; default: 127.0.0.1:0. An address that other machines can reach requires --http-token or --insecure");
  app->add_option("--http-token", options->token_file,
                  "file (mode 0600) with a token of at least 16 characters; HTTP requests must have the header "
                  "'Authorization: Bearer TOKEN'");
}

// The label `run` of metrics: the name of the run's folder.
inline std::string RunLabel(const std::string& run_dir) {
  if (run_dir.empty()) return {};
  std::filesystem::path path = std::filesystem::absolute(run_dir).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it ended in '/'
  return path.filename().string();
}

}  // namespace tarn::net
