#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "bench/gpu_bench/models.h"
#include "bench/gpu_bench/parts.h"
#include "core/hash.h"
#include "kernels/device_gemm.h"
#include "kernels/elementwise.h"
#include "kernels/gemm_algorithms.h"
#include "kernels/graph.h"
#include "kernels/initialize.h"
#include "kernels/unique.h"
#include "worker/models/model.h"

namespace tarn::bench {
namespace {

constexpr std::size_t kBatches = 4;  // distinct batches, used in turn

// A batch as a worker's reader produces it, in host memory, pinned on a GPU.
struct HostBatch {
  Array keys, labels, dense;
#if TARN_HAS_CUDA
  std::unique_ptr<kernels::Graph> graph;  // recorded work of the model
#endif
};

// Does only the GPU's work, from a batch's keys to its gradients, with all rows in the cache: copies the batch to the
// GPU, removes duplicate keys, finds and reads the rows, computes the model, and sums the gradients of rows and layers
// in GPU memory. A worker also reads data, plans for its servers and pushes.
class Step {
 public:
  Step(const Run& run, ModelKind kind)
      : run_(run),
        place_(run.place),
        sizes_(run.sizes),
        occurrences_(sizes_.batch * sizes_.fields),
        dim_(sizes_.dim),
        compute_(place_.stream()),
        grouping_(place_, occurrences_, dim_),
        keys_(place_.Allocate(occurrences_ * sizeof(Key), "keys")),
        unique_(place_.Allocate(occurrences_ * sizeof(Key), "keys")),
        inverse_(place_.Allocate(occurrences_ * sizeof(std::uint32_t), "an index")),
        slots_(place_.Allocate(occurrences_ * sizeof(std::uint32_t), "slots")),
        missing_(place_.Allocate(occurrences_ * sizeof(std::uint32_t), "the missing keys")),
        counts_(place_.Allocate(2 * sizeof(std::uint32_t), "counts")),
        labels_(place_.Allocate(sizes_.batch * sizeof(float), "labels")),
        dense_(place_.Allocate(sizes_.batch * kDenseColumns * sizeof(float), "dense columns")) {
    job_.model = ShapeOf(kind, dim_);
    job_.train.batch_rows = static_cast<std::uint32_t>(sizes_.batch);
    job_.train.precision = place_.on_gpu() ? Precision::kBf16 : Precision::kFp32;
    model_ =
        ValueOrDie(worker::MakeModel(job_, {.fields = sizes_.fields, .dense_columns = kDenseColumns, .classes = 2}));
    std::vector<std::uint32_t> offsets(sizes_.batch + 1);
    for (std::size_t s = 0; s <= sizes_.batch; ++s) offsets[s] = static_cast<std::uint32_t>(s * sizes_.fields);
    offsets_ = place_.Upload(offsets, "offsets");
    MakeBatches();
    MakeLayers();
    SetUpGpu();
  }
  ~Step() {
#if TARN_HAS_CUDA
    if (!place_.on_gpu()) return;
    place_.Wait();
    kernels::UseGemmAlgorithms(*place_.stream(), nullptr);
#endif
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  void Measure(const std::string& name) {
    for (std::size_t i = 0; i < kBatches; ++i) RunOnce();
    Check();
    const double seconds = SecondsOf(place_, {8 * run_.timing.seconds, run_.timing.repetitions}, [&] { RunOnce(); });
    Report(name, seconds);
    Record();
    const double recorded = SecondsOf(place_, {8 * run_.timing.seconds, run_.timing.repetitions}, [&] { RunOnce(); });
    Check();
    Report(name + "_graph", recorded);
  }

 private:
  void Report(const std::string& name, double seconds) {
    run_.Report(name, double(sizes_.batch) / seconds, "samples/s",
                {{"batch", std::uint64_t{sizes_.batch}},
                 {"fields", std::uint64_t{sizes_.fields}},
                 {"dim", std::uint64_t{dim_}},
                 {"precision", std::string(place_.on_gpu() ? "bf16" : "fp32")}},
                {{"us", seconds * 1e6}, {"unique_rows", double(n_unique_)}});
  }

  // Records the model's work of each batch as a graph, which later steps launch. On the CPU nothing is recorded.
  void Record() {
#if TARN_HAS_CUDA
    for (std::size_t b = 0; place_.on_gpu() && b < kBatches; ++b) {
      HostBatch& batch = batches_[next_++ % kBatches];
      LoadBatch(batch);
      FindRows();
      batch.graph = std::make_unique<kernels::Graph>(place_.stream());
      if (const Status status = batch.graph->Record([this] { Compute(); }); !status) Die(status.error().message);
      batch.graph->Launch();
      cache_->Unpin(n_unique_, slots_.as<std::uint32_t>());
    }
#endif
  }

  void MakeBatches() {
    std::set<Key> all;
    SplitMix random(9);
    for (std::size_t b = 0; b < kBatches; ++b) {
      const std::vector<Key> keys = MakeKeys(sizes_, b + 1);
      HostBatch& batch = batches_.emplace_back();
      batch.keys = place_.AllocateOnHost(occurrences_ * sizeof(Key), "a batch's keys");
      batch.labels = place_.AllocateOnHost(sizes_.batch * sizeof(float), "a batch's labels");
      batch.dense = place_.AllocateOnHost(sizes_.batch * kDenseColumns * sizeof(float), "a batch's columns");
      std::ranges::copy(keys, batch.keys.as<Key>());
      std::generate_n(batch.labels.as<float>(), sizes_.batch, [&] { return random.Chance(0.25) ? 1.0f : 0.0f; });
      std::generate_n(batch.dense.as<float>(), sizes_.batch * kDenseColumns, [&] { return float(random.Unit()); });
      all.insert(keys.begin(), keys.end());
    }
    FillCache({all.begin(), all.end()});
  }

  // Puts rows of these keys into the cache, which has room for twice as many, so that no bucket overflows.
  void FillCache(const std::vector<Key>& keys) {
    cache_ = place_.MakeHotRows(
        {.dim = dim_, .rows = 2 * keys.size() + 4096, .batch_keys_max = static_cast<std::uint32_t>(occurrences_)});
    rows_ = place_.Floats(occurrences_ * dim_, "rows", 0.01f);
    gradients_ = place_.Allocate(occurrences_ * dim_ * sizeof(float), "gradients of rows");
    const std::vector<std::uint32_t> absent(occurrences_, kernels::kNoSlot);
    for (std::size_t at = 0; at < keys.size(); at += occurrences_) {
      const std::size_t n = std::min(occurrences_, keys.size() - at);
      place_.Upload(keys.data() + at, n * sizeof(Key), unique_.as<Key>());
      place_.Upload(absent.data(), n * sizeof(std::uint32_t), slots_.as<std::uint32_t>());
      cache_->Insert(n, unique_.as<Key>(), Clock(0), slots_.as<std::uint32_t>());
      cache_->Fill(n, nullptr, slots_.as<std::uint32_t>(), rows_.as<float>(), Clock(0));
      cache_->Unpin(n, slots_.as<std::uint32_t>());
    }
    place_.Wait();
  }

  void MakeLayers() {
    const std::vector<worker::TableUse>& tables = model_->tables();
    views_.resize(tables.size());
    for (std::size_t t = 1; t < tables.size(); ++t) {
      const TableSpec& spec = tables[t].spec;
      std::vector<float> values(spec.rows * spec.dim);
      for (Key key = 0; key < spec.rows; ++key)
        kernels::InitializeRow(spec.initializer, t, key, {values.data() + key * spec.dim, spec.dim});
      layers_.push_back(place_.Upload(values, "a layer"));
      views_[t].rows = layers_.back().as<float>();
      layers_.push_back(place_.Allocate(values.size() * sizeof(float), "a layer's gradients"));
      views_[t].gradients = layers_.back().as<float>();
      views_[t].unique = spec.rows;
    }
  }

  void SetUpGpu() {
#if TARN_HAS_CUDA
    if (!place_.on_gpu()) return;
    kernels::Stream& stream = *place_.stream();
    algorithms_.emplace(kernels::MakeGemmAlgorithms(stream));
    kernels::UseGemmAlgorithms(stream, &*algorithms_);
    views_[0].segments = &grouping_.segments();
#endif
  }

  // One step.
  void RunOnce() {
    const HostBatch& batch = batches_[next_++ % kBatches];
    LoadBatch(batch);
    FindRows();
#if TARN_HAS_CUDA
    if (batch.graph != nullptr)
      batch.graph->Launch();
    else
#endif
      Compute();
    cache_->Unpin(n_unique_, slots_.as<std::uint32_t>());
  }

  void Compute() {
    for (std::size_t t = 0; t < views_.size(); ++t)
      compute_.Fill(views_[t].unique * model_->tables()[t].spec.dim, 0.0f, views_[t].gradients);
    compute_.memory().Reset();
    const worker::BatchView view{.rows = sizes_.batch,
                                 .fields = sizes_.fields,
                                 .dense_columns = kDenseColumns,
                                 .labels = labels_.as<float>(),
                                 .dense = dense_.as<float>(),
                                 .offsets = offsets_.as<std::uint32_t>(),
                                 .keys = occurrences_};
    predictions_ = model_->Step(compute_, {view, views_, 1.0f / float(sizes_.batch), true});
    if (compute_.memory().failed()) Die("no memory for the activations: " + compute_.memory().failure());
  }

  // Copies the batch to the place's memory and removes duplicate keys.
  void LoadBatch(const HostBatch& batch) {
    place_.UploadPinned(batch.keys, occurrences_ * sizeof(Key), keys_.as<Key>());
    place_.UploadPinned(batch.labels, sizes_.batch * sizeof(float), labels_.as<float>());
    place_.UploadPinned(batch.dense, sizes_.batch * kDenseColumns * sizeof(float), dense_.as<float>());
    place_.Run([&]<typename... On>(On&... on) {
      if constexpr (sizeof...(On) != 0) {
        kernels::UniqueKeys(on..., occurrences_, keys_.as<Key>(), unique_.as<Key>(), inverse_.as<std::uint32_t>(),
                            counts_.as<std::uint32_t>(), grouping_.sort(), grouping_.segments());
        n_unique_ = place_.Download(counts_.as<std::uint32_t>(), 1).front();
      } else {
        n_unique_ = kernels::UniqueKeys({keys_.as<Key>(), occurrences_}, unique_.as<Key>(),
                                        inverse_.as<std::uint32_t>(), unique_scratch_);
      }
    });
  }

  void FindRows() {
    cache_->Find(n_unique_, unique_.as<Key>(), Clock(0), slots_.as<std::uint32_t>(), missing_.as<std::uint32_t>(),
                 counts_.as<std::uint32_t>() + 1);
    cache_->Read(n_unique_, slots_.as<std::uint32_t>(), rows_.as<float>());
    views_[0].rows = rows_.as<float>();
    views_[0].gradients = gradients_.as<float>();
    views_[0].index = inverse_.as<std::uint32_t>();
    views_[0].unique = n_unique_;
  }

  // Checks the step: every row was found, predictions are finite, all tables have gradients.
  void Check() {
    if (const std::uint32_t missing = place_.Download(counts_.as<std::uint32_t>() + 1, 1).front(); missing != 0)
      Die(std::to_string(missing) + " rows of a batch are not in the cache, expected all");
    for (const float logit : place_.Download(predictions_.logits, sizes_.batch))
      if (!std::isfinite(logit)) Die("a prediction of the model is not finite");
    for (std::size_t t = 0; t < views_.size(); ++t) {
      const std::size_t n = views_[t].unique * model_->tables()[t].spec.dim;
      const std::vector<float> gradients = place_.Download(views_[t].gradients, n);
      if (!std::ranges::all_of(gradients, [](float g) { return std::isfinite(g); }) ||
          std::ranges::all_of(gradients, [](float g) { return g == 0; }))
        Die("the gradients of table " + model_->tables()[t].spec.name + " are all 0 or not finite");
    }
  }

  const Run& run_;
  Place& place_;
  const Sizes& sizes_;
  std::size_t occurrences_;
  std::uint32_t dim_;
  Job job_;
  std::unique_ptr<worker::Model> model_;
  worker::Compute compute_;
  Grouping grouping_;
  std::vector<HostBatch> batches_;
  std::size_t next_ = 0;
  std::unique_ptr<kernels::HotRows> cache_;
  Array keys_, unique_, inverse_, slots_, missing_, counts_, labels_, dense_, offsets_, rows_, gradients_;
  std::vector<Array> layers_;  // values and gradients, alternating
  std::vector<worker::TableView> views_;
  std::size_t n_unique_ = 0;
  kernels::UniqueScratch unique_scratch_;
  worker::Predictions predictions_;
#if TARN_HAS_CUDA
  std::optional<kernels::GemmAlgorithms> algorithms_;
#endif
};

}  // namespace

void MeasureSteps(const Run& run) {
  Step(run, ModelKind::kDlrm).Measure("step.dlrm");
  Step(run, ModelKind::kDcnV2).Measure("step.dcn_v2");
}

}  // namespace tarn::bench
