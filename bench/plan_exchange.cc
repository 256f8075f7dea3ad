// The C++ part of bench/torch_exchange: a worker that pulls and pushes the rows of several tables, step after step.
// Prints the seconds of the last --steps steps. The batches of the file are used in rotation.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "worker/tarn.h"

namespace {

struct Options {
  std::string keys;  // file of 64-bit keys: by step, table and row of the batch
  std::size_t tables = 26, batch = 2'048, batches = 100, warm_up = 150, steps = 450;
  std::uint32_t dim = 16;
};

tarn::TableSpec Spec(std::size_t table, std::uint32_t dim) {
  tarn::TableSpec spec;
  spec.name = fmt::format("table{}", table);
  spec.dim = dim;
  spec.initializer = {tarn::InitializerKind::kNormal, 0, 0.1f};
  spec.optimizer.kind = "adagrad";
  spec.optimizer.learning_rate = 0.05f;
  return spec;
}

tarn::Status Step(tarn::Client* ps, const std::vector<tarn::Table>& tables, std::span<const tarn::Key> keys) {
  const std::size_t batch = keys.size() / tables.size();
  std::vector<tarn::PlanPull> pulls;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto plan = ps->MakePlan(tables[t], keys.subspan(t * batch, batch));
    if (!plan) return std::unexpected(plan.error());
    pulls.push_back({*std::move(plan), {}});
  }
  const tarn::RowsFuture rows = ps->PullPlans(pulls);
  std::vector<tarn::PlanPush> pushes;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const auto values = rows.Wait(t);
    if (!values) return std::unexpected(values.error());
    // The rows are their own gradients. Like a push from Python, this one copies them.
    pushes.push_back({pulls[t].plan, tarn::Buffer::CopyOf(*values)});
  }
  ps->PushPlans(pushes);
  ps->Tick();
  return {};
}

tarn::Status Run(const Options& options) {
  std::vector<tarn::Key> keys(options.batches * options.tables * options.batch);
  std::ifstream file(options.keys, std::ios::binary);
  file.read(reinterpret_cast<char*>(keys.data()), std::streamsize(keys.size() * sizeof(tarn::Key)));
  if (!file) return tarn::Fail(tarn::ErrorCode::kIo, fmt::format("{}: expected {} keys", options.keys, keys.size()));
  const char* scheduler = std::getenv("TARN_SCHEDULER");
  auto ps = tarn::Client::Connect({.scheduler = scheduler != nullptr ? scheduler : ""});
  if (!ps) return std::unexpected(ps.error());
  std::vector<tarn::Table> tables;
  for (std::size_t t = 0; t < options.tables; ++t) {
    auto table = ps->OpenTable(Spec(t, options.dim));
    if (!table) return std::unexpected(table.error());
    tables.push_back(*std::move(table));
  }
  const std::size_t of_step = options.tables * options.batch;
  auto begun = std::chrono::steady_clock::now();
  for (std::size_t step = 0; step < options.warm_up + options.steps; ++step) {
    if (step == options.warm_up) begun = std::chrono::steady_clock::now();
    const std::span all(keys);
    if (auto done = Step(&*ps, tables, all.subspan(step % options.batches * of_step, of_step)); !done) return done;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  fmt::print("measured: {}\n", seconds.count());
  return ps->Leave();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"The C++ part of bench/torch_exchange."};
  app.add_option("--keys", options.keys, "file of 64-bit keys: by step, table and row of the batch")->required();
  app.add_option("--tables", options.tables, "number of tables")->capture_default_str();
  app.add_option("--batch", options.batch, "keys per table and step")->capture_default_str();
  app.add_option("--batches", options.batches, "number of batches in the file")->capture_default_str();
  app.add_option("--dim", options.dim, "values per row")->capture_default_str();
  app.add_option("--warm-up", options.warm_up, "steps before the measurement")->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const tarn::Status done = Run(options);
  if (!done) fmt::print(stderr, "plan_exchange: {}\n", tarn::ToString(done.error()));
  return done ? 0 : 1;
}
