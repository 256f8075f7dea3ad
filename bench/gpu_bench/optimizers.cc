#include "bench/gpu_bench/parts.h"
#include "core/job/job.h"
#include "kernels/optimizer.h"

namespace tarn::bench {
namespace {

// Measures one rule, which reads and writes rows and slots in random order, and reads gradients.
void MeasureOne(const Run& run, const char* kind) {
  Place& place = run.place;
  const std::size_t rows = run.sizes.optimizer_rows;
  const std::uint32_t dim = run.sizes.dim, slot_floats = SlotFloats(kind, dim);
  const Array values = place.Floats(rows * dim, "rows"), gradients = place.Floats(rows * dim, "gradients");
  const Array slots = place.Allocate(rows * slot_floats * sizeof(float), "slots");
  const std::vector<float> none(rows * slot_floats, 0.0f);
  place.Upload(none.data(), none.size() * sizeof(float), slots.as<float>());
  const std::vector<std::uint32_t> order = Permutation(rows);
  std::vector<float*> value_at(rows), slot_at(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    value_at[i] = values.as<float>() + std::size_t{order[i]} * dim;
    slot_at[i] = slots.as<float>() + std::size_t{order[i]} * slot_floats;
  }
  const Array value_pointers = place.Upload(value_at, "pointers"), slot_pointers = place.Upload(slot_at, "pointers");
  const OptimizerSpec spec{.kind = kind, .learning_rate = 1e-4f};
  const double seconds = SecondsOf(place, run.timing, [&] {
    place.Run([&](auto&... on) {
      kernels::ApplyOptimizer(on..., spec, Clock(1), dim, rows, value_pointers.as<float*>(),
                              slot_floats == 0 ? nullptr : slot_pointers.as<float*>(), gradients.as<float>());
    });
  });
  const double bytes = double(rows) * 4 * (2 * double(dim + slot_floats) + dim);
  run.Report(std::string("kernel.optimizer_") + std::string(Name(kind)), bytes / seconds / 1e9, "GB/s",
             {{"rows", std::uint64_t{rows}}, {"dim", std::uint64_t{dim}}}, {{"us", seconds * 1e6}});
}

}  // namespace

void MeasureOptimizers(const Run& run) {
  for (const char* kind :
       {"sgd", "momentum", "nesterov", "adagrad", "row_wise_adagrad", "rmsprop", "adam", "adamw", "ftrl"})
    MeasureOne(run, kind);
}

}  // namespace tarn::bench
