#include <fmt/format.h>

#include <map>
#include <optional>

#include "bench/gpu_bench/models.h"
#include "bench/gpu_bench/parts.h"
#include "kernels/convert.h"
#include "kernels/device_gemm.h"
#include "kernels/gemm.h"
#include "kernels/gemm_algorithms.h"
#include "worker/models/compute.h"

namespace tarn::bench {
namespace {

struct Seconds {
  double ours = 0, limit = 0;  // of all products in a step of the layer
};

class Products {
 public:
  explicit Products(const Run& run) : run_(run), place_(run.place) {
#if TARN_HAS_CUDA
    if (!place_.on_gpu()) return;
    algorithms_.emplace(kernels::MakeGemmAlgorithms(*place_.stream()));
    kernels::UseGemmAlgorithms(*place_.stream(), &*algorithms_);
#endif
  }
  ~Products() {
#if TARN_HAS_CUDA
    if (place_.on_gpu()) kernels::UseGemmAlgorithms(*place_.stream(), nullptr);
#endif
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void Measure(const ModelLayers& model) {
    Seconds all;
    double operations = 0;
    for (const Layer& layer : model.layers) {
      const Seconds seconds = SecondsOfLayer(layer);
      all.ours += seconds.ours, all.limit += seconds.limit;
      operations += OperationsOf(layer);
    }
    Report(fmt::format("product.{}", model.name), operations, all);
  }

 private:
  // Operations of the forward pass and of both products of the backward pass, or of one if the gradient of the inputs
  // is not needed.
  double OperationsOf(const Layer& layer) const {
    return 2.0 * double(run_.sizes.batch) * double(Padded(layer.in)) * double(Padded(layer.out)) *
           (layer.reads_data ? 2 : 3);
  }
  std::size_t Padded(std::size_t n) const { return worker::Compute(place_.stream()).Padded(n); }

  // Equal layers are measured once.
  Seconds SecondsOfLayer(const Layer& layer) {
    const auto found = measured_.find(layer);
    if (found != measured_.end()) return found->second;
    const std::size_t rows = run_.sizes.batch, in = Padded(layer.in), out = Padded(layer.out);
    Seconds seconds;
    seconds.limit = run_.limits.ProductSeconds({.m = rows, .n = out, .k = in, .b_transposed = true}) +
                    run_.limits.ProductSeconds({.m = out, .n = in, .k = rows, .a_transposed = true, .wide_c = true});
    if (!layer.reads_data) seconds.limit += run_.limits.ProductSeconds({.m = rows, .n = in, .k = out});
    seconds.ours = place_.on_gpu() ? OnGpu(layer, {rows, in, out, Precision::kBf16}) : OnHost(layer, {rows, in, out});
    Report(fmt::format("product.{}x{}{}", layer.in, layer.out, layer.relu ? "_relu" : ""), OperationsOf(layer),
           seconds);
    measured_.emplace(layer, seconds);
    return seconds;
  }

  void Report(std::string name, double operations, const Seconds& seconds) const {
    run_.Report(
        std::move(name), operations / seconds.ours / 1e12, "TFLOP/s",
        {{"batch", std::uint64_t{run_.sizes.batch}}, {"precision", std::string(place_.on_gpu() ? "bf16" : "fp32")}},
        {{"limit", operations / seconds.limit / 1e12}, {"us", seconds.ours * 1e6}});
  }

  double OnHost(const Layer& layer, const kernels::LinearShape& shape) {
    const auto [rows, in, out, precision] = shape;
    const Array x = place_.Floats(rows * in, "x"), w = place_.Floats(out * in, "w"), bias = place_.Floats(out, "bias");
    const Array y = place_.Floats(rows * out, "y"), dy = place_.Floats(rows * out, "dy");
    const Array dx = place_.Floats(rows * in, "dx"), dw = place_.Floats(out * in, "dw");
    const Array dbias = place_.Floats(out, "dbias");
    return SecondsOf(place_, run_.timing, [&] {
      kernels::LinearForward(shape, x.as<float>(), w.as<float>(), layer.bias ? bias.as<float>() : nullptr, layer.relu,
                             y.as<float>());
      kernels::LinearBackward(shape, x.as<float>(), w.as<float>(), y.as<float>(), layer.relu, dy.as<float>(),
                              layer.reads_data ? nullptr : dx.as<float>(), dw.as<float>(),
                              layer.bias ? dbias.as<float>() : nullptr);
    });
  }

#if TARN_HAS_CUDA
  // Like a LayerStack (worker/models/layers.cc): the ReLU of the layer below is applied to dx in the same call.
  double OnGpu(const Layer& layer, const kernels::LinearShape& shape) {
    using Bits = std::uint16_t;
    const auto [rows, in, out, precision] = shape;
    kernels::Stream& stream = *place_.stream();
    const Array x = Bf16(rows * in, "x"), w = Bf16(out * in, "w"), bias = Bf16(out, "bias");
    const Array y = Bf16(rows * out, "y"), dy = Bf16(rows * out, "dy"), dx = Bf16(rows * in, "dx");
    const Array dw = place_.Floats(out * in, "dw"), dbias = place_.Floats(out, "dbias");
    const Array y_mask = Mask(rows, out), x_mask = Mask(rows, in);
    const Bits* const b = layer.bias ? bias.as<Bits>() : nullptr;
    const kernels::LinearGradients<Bits> arrays{.x = x.as<Bits>(),
                                                .w = w.as<Bits>(),
                                                .dy = dy.as<Bits>(),
                                                .dw = dw.as<float>(),
                                                .dbias = layer.bias ? dbias.as<float>() : nullptr,
                                                .dx = layer.reads_data ? nullptr : dx.as<Bits>(),
                                                .x_mask = layer.above_relu ? x_mask.as<std::uint32_t>() : nullptr};
    return SecondsOf(place_, run_.timing, [&] {
      if (layer.relu)
        kernels::LinearForward(stream, shape, x.as<Bits>(), w.as<Bits>(), b, y.as<Bits>(), y_mask.as<std::uint32_t>());
      else
        kernels::LinearForward(stream, shape, x.as<Bits>(), w.as<Bits>(), b, false, y.as<Bits>());
      kernels::LinearBackward(stream, shape, arrays);
    });
  }

  Array Bf16(std::size_t n, const char* what) {
    const Array wide = place_.Floats(n, what);
    Array narrow = place_.Allocate(n * sizeof(std::uint16_t), what);
    kernels::FloatToBf16(*place_.stream(), n, wide.as<float>(), narrow.as<std::uint16_t>());
    place_.Wait();
    return narrow;
  }
  Array Mask(std::size_t rows, std::size_t columns) {
    return place_.Upload(std::vector<std::uint32_t>(kernels::ReluMaskWords(rows, columns), 0x5555'5555u), "a mask");
  }

  std::optional<kernels::GemmAlgorithms> algorithms_;
#else
  double OnGpu(const Layer&, const kernels::LinearShape&) { return 0; }  // never called in builds without CUDA
#endif

  const Run& run_;
  Place& place_;
  std::map<Layer, Seconds> measured_;
};

}  // namespace

void MeasureProducts(const Run& run) {
  Products products(run);
  for (const ModelLayers& model : LayersOf(run.sizes)) products.Measure(model);
}

}  // namespace tarn::bench
