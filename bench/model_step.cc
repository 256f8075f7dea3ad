// Measures the training step of a model alone, on one thread: plan, gather, forward and backward, apply, over batches
// generated in advance. With --dump the batches and the initial parameters are written to a directory, so that another
// framework can train the same steps (bench/compare_pytorch). On a GPU, matrix products use the algorithms file of
// workers; the first steps measure missing algorithms.
//
//   model_step --model dlrm --rows 2048 --steps 100

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/job/job.h"
#include "core/json.h"
#include "kernels/stream.h"
#include "server/store/store.h"
#include "worker/client/plan.h"
#include "worker/models/model.h"
#include "worker/train/algorithms_file.h"
#include "worker/train/batch_planner.h"
#include "worker/train/stepper.h"

namespace {

using namespace tarn;
using namespace tarn::worker;
using SteadyClock = std::chrono::steady_clock;

struct Options {
  std::string model = "dlrm";
  std::uint32_t rows = 2048, steps = 100, warmup = 10, fields = 26, field_keys = 10'000, dim = 64, dense = 13;
  std::uint32_t cross_layers = 3, cross_rank = 0;
  std::vector<std::uint32_t> bottom = {512, 256}, hidden;  // hidden: empty for the default of the model
  double rate = 0.1, skew = 1.05;
  std::uint32_t accumulate = 1;
  bool recompute = false, no_graphs = false;
  std::string dump, precision = "fp32", device = "cpu";
};

// Returns the seconds since `begin`, and sets it to now.
double Lap(SteadyClock::time_point* begin) {
  const auto now = SteadyClock::now();
  const double seconds = std::chrono::duration<double>(now - *begin).count();
  *begin = now;
  return seconds;
}

Job JobOf(const Options& options) {
  Job job;
  (void)ParseName(options.model, job.model.kind);
  job.fleet.partition_bits = 0;
  job.train.batch_rows = options.rows;
  (void)ParseName(options.precision, job.train.precision);
  job.train.device = options.device;
  job.train.accumulate = options.accumulate;
  job.train.recompute = options.recompute;
  job.model.embedding_dim = options.dim;
  job.model.bottom = options.bottom;
  job.model.hidden = options.hidden;
  if (options.hidden.empty())
    job.model.hidden = job.model.kind == ModelKind::kMlp ? std::vector{512u, 256u} : std::vector{512u, 512u, 256u};
  job.model.cross_layers = options.cross_layers;
  job.model.cross_rank = options.cross_rank;
  for (OptimizerSpec* spec : {&job.optimizer.linear, &job.optimizer.embedding, &job.optimizer.dense})
    *spec = {.kind = "sgd", .learning_rate = static_cast<float>(options.rate)};
  return job;
}

ModelShape ShapeOf(ModelKind kind, const Options& options) {
  if (kind == ModelKind::kMlp) return {.fields = 0, .dense_columns = 784, .classes = 10};
  const bool deep = kind == ModelKind::kWideDeep || kind == ModelKind::kDeepFm;  // they have no dense columns
  return {.fields = options.fields, .dense_columns = deep ? 0 : options.dense, .classes = 2};
}

// Ranks 0..n-1 with probability proportional to 1 / (rank + 1)^skew.
class Zipf {
 public:
  Zipf(std::uint32_t n, double skew) : sums_(n) {
    double sum = 0;
    for (std::uint32_t i = 0; i < n; ++i) sums_[i] = sum += std::pow(i + 1, -skew);
  }
  std::uint32_t Draw(SplitMix& random) const {
    const double at = random.Unit() * sums_.back();
    return static_cast<std::uint32_t>(std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

std::vector<Batch> MakeBatches(const Options& options, const ModelShape& shape, std::uint32_t count) {
  SplitMix random(7);
  const Zipf zipf(options.field_keys, options.skew);
  std::vector<Batch> batches(count);
  for (Batch& batch : batches) {
    batch.Clear();
    batch.rows = options.rows;
    batch.fields = shape.fields;
    batch.dense_columns = shape.dense_columns;
    for (std::uint32_t r = 0; r < options.rows; ++r) {
      float sum = 0;
      for (std::uint32_t d = 0; d < shape.dense_columns; ++d) {
        batch.dense.push_back(static_cast<float>(random.Unit() * 2 - 1));
        sum += batch.dense.back();
      }
      for (std::uint32_t f = 0; f < shape.fields; ++f) {
        batch.keys.push_back(1 + Key{f} * options.field_keys + zipf.Draw(random));
        if (shape.dense_columns == 0) sum += batch.keys.back() % 2 == 0 ? 0.3f : -0.3f;
      }
      batch.offsets.push_back(static_cast<std::uint32_t>(batch.keys.size()));
      // Labels that can be learnt, with noise.
      const double noisy = double(sum) + random.Unit() * 2 - 1;
      batch.labels.push_back(shape.classes == 2
                                 ? (noisy > 0 ? 1.0f : 0.0f)
                                 : static_cast<float>(std::uint64_t(std::abs(noisy) * 4) % shape.classes));
    }
  }
  return batches;
}

class Bench {
 public:
  static Expected<std::unique_ptr<Bench>> Make(const Options& options) {
    const Job job = JobOf(options);
    const ModelShape shape = ShapeOf(job.model.kind, options);
    auto model = MakeModel(job, shape);
    if (!model) return std::unexpected(model.error());
    const std::string file = AlgorithmsFile(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"), "");
    auto stepper = Stepper::Make(job, model->get(), {.algorithms_file = file});
    if (!stepper) return std::unexpected(stepper.error());
    (*stepper)->UseGraphs(!options.no_graphs);
    return std::unique_ptr<Bench>(new Bench(options, job, shape, std::move(*model), std::move(*stepper)));
  }

  // Trains every batch once and appends the loss of each step, or nullopt for a skipped batch, whose gradients overflow
  // in fp16. Errors as in Stepper::Run.
  Status Run(std::span<Batch> batches, std::vector<std::optional<double>>* losses) {
    for (Batch& batch : batches) {
      auto loss = Step(batch);
      if (!loss) return std::unexpected(std::move(loss).error());
      losses->push_back(*loss);
    }
    return {};
  }

  // Writes the current parameters and the batches to --dump, as raw little-endian arrays.
  Status Dump(std::span<const Batch> batches) const {
    const std::filesystem::path folder = options_.dump;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    bool good = !error;
    const auto write = [&](const std::string& name, const void* data, std::size_t bytes, const char* mode) {
      std::FILE* file = std::fopen((folder / name).c_str(), mode);
      good = file != nullptr && std::fwrite(data, 1, bytes, file) == bytes && good;
      if (file != nullptr) good = std::fclose(file) == 0 && good;
    };
    for (const char* name : {"dense.f32", "keys.i64", "labels.f32"}) write(name, "", 0, "wb");
    for (const Batch& batch : batches) {
      write("dense.f32", batch.dense.data(), batch.dense.size() * sizeof(float), "ab");
      write("keys.i64", batch.keys.data(), batch.keys.size() * sizeof(Key), "ab");
      write("labels.f32", batch.labels.data(), batch.labels.size() * sizeof(float), "ab");
    }
    Json json = {{"model", options_.model},
                 {"rows", options_.rows},
                 {"steps", batches.size()},
                 {"dense", shape_.dense_columns},
                 {"fields", shape_.fields},
                 {"classes", shape_.classes},
                 {"field_keys", options_.field_keys},
                 {"dim", options_.dim},
                 {"rate", options_.rate},
                 {"tables", Json::array()}};
    for (const TableUse& use : uses_) {
      const std::uint64_t rows =
          use.rows == RowsNeeded::kAll ? use.spec.rows : 1 + std::uint64_t{shape_.fields} * options_.field_keys;
      std::vector<float> values;
      for (Key key = 0; key < rows; ++key) {
        const std::vector<float> row = rows_.Values(use.spec.id, key).value();
        values.insert(values.end(), row.begin(), row.end());
      }
      write(use.spec.name + ".f32", values.data(), values.size() * sizeof(float), "wb");
      json["tables"].push_back({{"name", use.spec.name}, {"rows", rows}, {"dim", use.spec.dim}});
    }
    const std::string config = JsonText(json, 2);
    write("config.json", config.data(), config.size(), "wb");
    if (!good)
      return Fail(ErrorCode::kIo, fmt::format("--dump {}: cannot write the parameters and batches", options_.dump));
    return {};
  }

  const ModelShape& shape() const { return shape_; }
  std::size_t activation_bytes() const { return stepper_->activation_bytes(); }
  std::uint64_t graphs_launched() const { return stepper_->graphs_launched(); }
  double plan = 0, gather = 0, compute = 0, apply = 0;  // seconds

 private:
  Bench(const Options& options, const Job& job, const ModelShape& shape, std::unique_ptr<Model> model,
        std::unique_ptr<Stepper> stepper)
      : options_(options),
        shape_(shape),
        model_(std::move(model)),
        uses_(WithIds(model_->tables())),
        planner_(job, uses_, {}),  // on the host
        rows_({.job_seed = job.job.seed, .partition_bits = 0, .owned = {PartitionId(0)}}),
        stepper_(std::move(stepper)) {
    for (std::uint32_t t = 0; t < uses_.size(); ++t) {
      const TableSpec& spec = uses_[t].spec;
      const Status added = rows_.AddTable(spec);
      TARN_CHECK(added.has_value(), "the row store accepts the model's tables");
      plans_.push_back(use_all(t) ? PlanOfAll(spec, job.job.seed, 0) : Plan{});
    }
  }
  static std::vector<TableUse> WithIds(std::vector<TableUse> uses) {
    for (std::uint32_t t = 0; t < uses.size(); ++t) uses[t].spec.id = TableId(t);
    return uses;
  }
  bool use_all(std::size_t t) const { return uses_[t].rows == RowsNeeded::kAll; }

  Expected<std::optional<double>> Step(Batch& batch) {
    auto begin = SteadyClock::now();
    std::vector<const Plan*> plans;
    TARN_RETURN_IF_ERROR(planner_.Make(&batch.keys, &plans_));
    plans.reserve(plans_.size());
    for (const Plan& of_table : plans_) plans.push_back(&of_table);
    plan += Lap(&begin);
    std::vector<Buffer> values;
    for (std::size_t t = 0; t < uses_.size(); ++t) {
      values.push_back(Buffer::Allocate(plans_[t].keys.size() * plans_[t].dim * sizeof(float)));
      rows_.Gather(uses_[t].spec.id, Sections(t), plans_[t].keys, ValueCodec::kFp32, values[t].data());
    }
    gather += Lap(&begin);
    const auto gradients = stepper_->Run(batch, plans, values, true, &quality_);
    if (!gradients) return std::unexpected(std::move(gradients).error());
    compute += Lap(&begin);
    if (gradients->empty()) return std::nullopt;
    for (std::size_t t = 0; t < gradients->size(); ++t)
      rows_.Apply(uses_[t].spec.id, Sections(t), plans_[t].keys, ValueCodec::kFp32, (*gradients)[t].data(), clock_);
    clock_ = clock_ + 1;
    apply += Lap(&begin);
    return quality_.Take().loss_sum / static_cast<double>(batch.rows);
  }

  std::vector<Section> Sections(std::size_t t) const {
    return {{PartitionId(0), static_cast<std::uint32_t>(plans_[t].keys.size()), Sequence(0)}};
  }

  Options options_;
  ModelShape shape_;
  std::unique_ptr<Model> model_;
  std::vector<TableUse> uses_;
  BatchPlanner planner_;
  server::Store rows_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<Plan> plans_;
  QualityTally quality_;
  Clock clock_;
};

int Failed(const Error& error) {
  fmt::print(stderr, "model_step: {}\n", error.message);
  return 1;
}

int Measure(const Options& options) {
  auto bench = Bench::Make(options);
  if (!bench) return Failed(bench.error());
  Bench& b = **bench;
  std::vector<Batch> batches = MakeBatches(options, b.shape(), options.warmup + options.steps);
  const std::span<Batch> all(batches);
  if (!options.dump.empty())
    if (auto status = b.Dump(all); !status) return Failed(status.error());
  std::vector<std::optional<double>> losses;
  if (auto status = b.Run(all.first(options.warmup), &losses); !status) return Failed(status.error());
  const kernels::DeviceUse before = kernels::DeviceUseSoFar();
  b.plan = b.gather = b.compute = b.apply = 0;
  if (auto status = b.Run(all.subspan(options.warmup), &losses); !status) return Failed(status.error());
  const kernels::DeviceUse after = kernels::DeviceUseSoFar();
  const double seconds = b.plan + b.gather + b.compute + b.apply;
  // GPU operations per step; operations of a graph are counted when it is recorded.
  Json gpu = Json::object();
  const auto of_step = [&](const char* name, std::uint64_t kernels::DeviceUse::* count) {
    gpu[name] = double(after.*count - before.*count) / options.steps;
  };
  of_step("operations", &kernels::DeviceUse::operations);
  of_step("graphs", &kernels::DeviceUse::graphs);
  of_step("copies", &kernels::DeviceUse::copies);
  of_step("bytes_to_device", &kernels::DeviceUse::bytes_to_device);
  of_step("bytes_to_host", &kernels::DeviceUse::bytes_to_host);
  of_step("waits", &kernels::DeviceUse::waits);
  of_step("allocations", &kernels::DeviceUse::allocations);
  Json of_batches = Json::array();
  for (const std::optional<double>& loss : losses) of_batches.push_back(loss ? Json(*loss) : Json());
  const Json json = {{"model", options.model},
                     {"rows", options.rows},
                     {"steps", options.steps},
                     {"samples_per_second", double(options.rows) * options.steps / seconds},
                     {"activation_bytes", b.activation_bytes()},
                     {"graphs_launched", b.graphs_launched()},
                     {"plan", b.plan},
                     {"gather", b.gather},
                     {"compute", b.compute},
                     {"apply", b.apply},
                     {"gpu_of_step", std::move(gpu)},
                     {"batches_passed_over", std::ranges::count_if(losses, [](const auto& loss) { return !loss; })},
                     {"losses", std::move(of_batches)}};
  fmt::print("{}\n", JsonText(json));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Measures the training steps of one model on one thread; prints a JSON object."};
  app.add_option("--model", options.model, "model")
      ->check(CLI::IsMember({"dlrm", "dcn_v2", "wide_deep", "deepfm", "mlp"}))
      ->capture_default_str();
  app.add_option("--rows", options.rows, "rows per batch")->capture_default_str()->check(CLI::Range(1u, 1u << 20));
  app.add_option("--steps", options.steps, "timed steps")->capture_default_str()->check(CLI::Range(1u, 100'000u));
  app.add_option("--warmup", options.warmup, "untimed steps before them")->capture_default_str();
  app.add_option("--fields", options.fields, "keys per row")->capture_default_str()->check(CLI::Range(1u, 1000u));
  app.add_option("--field-keys", options.field_keys, "distinct keys per field")->capture_default_str();
  app.add_option("--dim", options.dim, "values per embedding")->capture_default_str()->check(CLI::Range(1u, 4096u));
  app.add_option("--bottom", options.bottom, "layers over the dense columns, such as 512,256")->delimiter(',');
  app.add_option("--hidden", options.hidden, "layers before the output (default: 512,512,256; mlp: 512,256)")
      ->delimiter(',');
  app.add_option("--cross-layers", options.cross_layers, "cross layers of DCN v2")->capture_default_str();
  app.add_option("--cross-rank", options.cross_rank, "rank of their matrices; 0: full")->capture_default_str();
  app.add_option("--rate", options.rate, "of SGD")->capture_default_str();
  app.add_option("--skew", options.skew, "Zipf exponent of the keys")->capture_default_str();
  app.add_option("--precision", options.precision, "precision of matrix products")
      ->check(CLI::IsMember({"fp32", "bf16", "tf32", "fp16"}))
      ->capture_default_str();
  app.add_option("--device", options.device, "cpu, gpu or gpu:N")->capture_default_str();
  app.add_option("--accumulate", options.accumulate, "parts of a batch (train.accumulate)")->capture_default_str();
  app.add_flag("--recompute", options.recompute, "recompute activations in the backward pass");
  app.add_flag("--no-graphs", options.no_graphs, "on a GPU: launch each operation separately, without graphs");
  app.add_option("--dump", options.dump, "write the batches and initial parameters to this folder");
  CLI11_PARSE(app, argc, argv);
  return Measure(options);
}
