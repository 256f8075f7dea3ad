#include "kernels/cpu/fused_layer.h"

#include <dnnl.hpp>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "core/error.h"
#include "kernels/cpu/one_thread.h"
#include "kernels/cpu/onednn_memory.h"
#include "kernels/cpu/shape_cache.h"

namespace tarn::kernels {
namespace {

using dnnl::memory;

// rows, in, out, has bias, has ReLU
using Key = std::tuple<std::size_t, std::size_t, std::size_t, bool, bool>;

memory::desc Describe(std::size_t rows, std::size_t columns, memory::format_tag order) {
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)}, memory::data_type::f32, order};
}

struct Layer {
  dnnl::matmul product;
  dnnl::reorder pack;
  memory x, w, packed, bias, y;
};

// One thread's engine, and the layers of its most recent shapes.
class LayerCache {
 public:
  bool Forward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y) {
    const Key key{shape.rows, shape.in, shape.out, bias != nullptr, relu};
    std::optional<Layer>& layer = layers_.Find(key, [&] { return Make(shape, bias != nullptr, relu); });
    if (!layer) return false;
    layer->x.set_data_handle(const_cast<float*>(x));  // oneDNN only reads its source arguments
    layer->w.set_data_handle(const_cast<float*>(w));
    layer->bias.set_data_handle(const_cast<float*>(bias));
    layer->y.set_data_handle(y);
    layer->packed.set_data_handle(PackedWeights(layer->packed.get_desc().get_size()));
    layer->pack.execute(stream_, layer->w, layer->packed);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, layer->x}, {DNNL_ARG_WEIGHTS, layer->packed}, {DNNL_ARG_DST, layer->y}};
    if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, layer->bias);
    layer->product.execute(stream_, arguments);
    stream_.wait();
    return true;
  }

 private:
  std::optional<Layer> Make(const LinearShape& shape, bool bias, bool relu) {
    using Order = memory::format_tag;
    const memory::desc x = Describe(shape.rows, shape.in, Order::ab), y = Describe(shape.rows, shape.out, Order::ab);
    const memory::desc w = Describe(shape.in, shape.out, Order::ba);
    const memory::desc row = bias ? Describe(1, shape.out, Order::ab) : memory::desc();
    dnnl::primitive_attr attributes;
    if (relu) {
      dnnl::post_ops after;
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
      attributes.set_post_ops(after);
    }
    try {
      const dnnl::matmul::desc wanted(x, Describe(shape.in, shape.out, Order::any), row, y);
      const dnnl::matmul::primitive_desc found(wanted, attributes, engine_);
      const auto without_data = [&](const memory::desc& each) { return memory(each, engine_, nullptr); };
      const memory from = without_data(w), packed = without_data(found.weights_desc());
      return Layer{dnnl::matmul(found), dnnl::reorder(from, packed), without_data(x), from, packed, without_data(row),
                   without_data(y)};
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory) throw;
      TARN_CHECK(e.status == dnnl_unimplemented, "oneDNN rejected a valid layer shape");
      return std::nullopt;
    }
  }

  // Memory for the packed weights of a layer, valid until the next call.
  void* PackedWeights(std::size_t bytes) {
    if (packed_weights_.get_desc().get_size() < bytes)
      packed_weights_ =
          memory({{static_cast<memory::dim>(bytes)}, memory::data_type::u8, memory::format_tag::a}, engine_);
    return packed_weights_.get_data_handle();
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  ShapeCache<Key, std::optional<Layer>> layers_;
  memory packed_weights_{{{1}, memory::data_type::u8, memory::format_tag::a}, engine_};
};

}  // namespace

bool FusedForward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y) {
  const OneThread one_thread;
  return WithBadAlloc([&] {
    thread_local LayerCache layers;
    return layers.Forward(shape, x, w, bias, relu, y);
  });
}

}  // namespace tarn::kernels
