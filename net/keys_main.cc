// tarn-keys: generates the key file of a fleet on several machines.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "net/zmq/curve.h"

int main(int argc, char** argv) {
  CLI::App app{
      "Generates a file with the CURVE key pair of a fleet. Copy the file to every machine of the fleet and pass it "
      "to\n"
      "scheduler, servers and workers with --keys. Connections are then encrypted, and only holders of the file can\n"
      "join.\n\n"
      "  tarn-keys fleet.keys\n\n"
      "Exit status: 0 done, 1 failed, 2 bad usage."};
  std::string path;
  app.add_option("file", path, "file to create; it must not exist")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const auto keys = tarn::net::MakeCurveKeys();
  const tarn::Status saved = keys ? tarn::net::SaveCurveKeys(*keys, path) : std::unexpected(keys.error());
  if (saved) return 0;
  fmt::print(stderr, "tarn-keys: {}\n", saved.error().message);
  return 1;
}
