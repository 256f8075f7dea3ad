#include "bench/gpu_bench/parts.h"
#include "core/job/job.h"
#include "core/position.h"
#include "worker/client/plan.h"
#include "worker/train/device_planner.h"

namespace tarn::bench {
namespace {

// Makes the plan of a batch's keys, as a worker's reader thread does.
class Plans {
 public:
  explicit Plans(const Run& run) : run_(run), keys_(MakeKeys(run.sizes, 1)), host_(FleetSection{}.partition_bits) {
#if TARN_HAS_CUDA
    if (run.place.on_gpu())
      device_ = ValueOrDie(worker::MakeDevicePlanner(run.place.gpu(), FleetSection{}.partition_bits));
#endif
  }

  void Measure() {
    Report("plan.batch", [this] { device_ != nullptr ? OnDevice() : OnHost(); });
    if (device_ != nullptr) device_->TakeBack(&plan_);
    Report("plan.batch_on_host", [this] { OnHost(); });
  }

 private:
  void OnHost() { host_.Make(TableId(0), run_.sizes.dim, positioner_, keys_, &plan_); }

  void OnDevice() {
    Status made = device_->Bring(keys_);
    if (made) made = device_->Make(TableId(0), run_.sizes.dim, positioner_, keys_.size(), &plan_);
    if (!made) Die(made.error().message);
  }

  template <typename Call>
  void Report(const char* name, Call call) {
    const double seconds = SecondsOf(run_.place, run_.timing, call);
    run_.Report(name, double(keys_.size()) / seconds, "keys/s",
                {{"batch", std::uint64_t{run_.sizes.batch}}, {"fields", std::uint64_t{run_.sizes.fields}}},
                {{"us", seconds * 1e6}, {"unique", double(plan_.keys.size())}});
  }

  const Run& run_;
  std::vector<Key> keys_;
  Positioner positioner_{TableSpec{.kind = TableKind::kSparse}, TableSalt(1, "embedding")};
  worker::Planner host_;
  std::unique_ptr<worker::DevicePlanner> device_;  // null if the place is the CPU
  worker::Plan plan_;
};

}  // namespace

void MeasurePlans(const Run& run) { Plans(run).Measure(); }

}  // namespace tarn::bench
