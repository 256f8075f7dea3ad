// A minimal program that trains a table of its own on a tarn fleet: pulls, pushes, ticks.
//
//   tools/build && export PATH=$PWD/build/release/bin:$PATH
//   tarn-scheduler --job examples/cpp/hello.toml --run-dir runs/hello &
//   tarn-server --scheduler runs/hello --rank 0 --shards 2 &
//   tarn-hello --scheduler runs/hello
//   kill %1
//
// The job has no data, so the fleet does not end by itself. After the program it waits for the next worker until its
// scheduler is stopped, here by `kill %1`.
//
// The program learns x[k] = k for a few keys by gradient descent on (x[k] - k)^2 / 2, and prints the rows.

#include <cstdio>
#include <string>
#include <vector>

#include "worker/tarn.h"

namespace {

constexpr int kClocks = 50;

int PrintError(const tarn::Error& error) {
  std::fprintf(stderr, "tarn-hello: %s\n", tarn::ToString(error).c_str());
  return 1;
}

tarn::TableSpec HelloTable() {
  tarn::TableSpec spec;
  spec.name = "hello";
  spec.dim = 2;
  spec.optimizer.kind = "sgd";
  spec.optimizer.learning_rate = 0.25f;
  return spec;
}

int Run(const std::string& scheduler) {
  auto ps = tarn::Client::Connect({.scheduler = scheduler});
  if (!ps) return PrintError(ps.error());
  auto table = ps->OpenTable(HelloTable());
  if (!table) return PrintError(table.error());

  const std::vector<tarn::Key> keys = {1, 2, 3, 5, 8, 13};
  std::vector<float> gradients(keys.size() * table->dim());
  for (int clock = 0; clock < kClocks; ++clock) {
    const auto rows = ps->Pull(*table, keys);
    const auto values = rows.Wait();
    if (!values) return PrintError(values.error());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = (*values)[i] - static_cast<float>(keys[i / table->dim()]);
    ps->Push(*table, keys, gradients);
    ps->Tick();
  }

  const auto rows = ps->Pull(*table, keys);
  const auto values = rows.Wait();
  if (!values) return PrintError(values.error());
  for (std::size_t i = 0; i < keys.size(); ++i)
    std::printf("x[%2lu] = %7.4f\n", static_cast<unsigned long>(keys[i]),
                static_cast<double>((*values)[i * table->dim()]));
  const tarn::Status left = ps->Leave();
  if (!left) return PrintError(left.error());
  std::printf(
      "done; the fleet waits for more workers until its scheduler is stopped (Ctrl-C, or kill of its process)\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--scheduler") return Run(argv[2]);
  const bool help = argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h");
  std::fprintf(help ? stdout : stderr, "usage: %s --scheduler RUN_DIR|ADDRESS\n", argv[0]);
  return help ? 0 : 2;
}
