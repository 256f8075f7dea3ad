#include <cstring>

#include "bench/gpu_bench/limits.h"
#include "kernels/gemm.h"

namespace tarn::bench {
namespace {

class HostLimits : public Limits {
 public:
  explicit HostLimits(const Timing& timing) : timing_(timing), place_(ValueOrDie(Place::Make("cpu"))) {}

  double CopyBytesPerSecond(std::size_t bytes) override {
    const Array from = place_->Floats(bytes / sizeof(float), "a copy"), to = place_->Allocate(bytes, "a copy");
    const double seconds = SecondsOf(*place_, timing_, [&] {
      std::memcpy(to.as<float>(), from.as<float>(), bytes / sizeof(float) * sizeof(float));
      Keep(to.as<float>());
    });
    return 2 * double(bytes) / seconds;
  }

  double HostCopyBytesPerSecond(std::size_t bytes, bool, bool) override { return CopyBytesPerSecond(bytes) / 2; }

  double ProductSeconds(const ProductShape& shape) override {
    const auto [m, n, k, a_transposed, b_transposed, wide] = shape;
    const Array a = place_->Floats(m * k, "A"), b = place_->Floats(k * n, "B"), c = place_->Floats(m * n, "C");
    const auto in = [](const Array& x, bool transposed, std::size_t rows, std::size_t columns) {
      return kernels::MatrixIn{x.as<float>(), transposed ? rows : columns, kernels::Transpose{transposed}};
    };
    return SecondsOf(*place_, timing_, [&] {
      kernels::Gemm({m, n, k}, 1, in(a, a_transposed, m, k), in(b, b_transposed, k, n), 0, c.as<float>(), n);
    });
  }

 private:
  Timing timing_;
  std::unique_ptr<Place> place_;
};

}  // namespace

std::unique_ptr<Limits> MakeHostLimits(const Timing& timing) { return std::make_unique<HostLimits>(timing); }

}  // namespace tarn::bench
