// Measures each kernel on one thread and compares it with a limit: the rate of a memory copy for kernels that move
// data, the rate of the largest matrix product for kernels that multiply, and for that product the rate of
// multiply-adds in registers. Figures are medians of several repetitions. The arrays of streams and random rows are
// larger than the caches (--mib). Layers have the size of a batch of 2,048 samples, which may fit into the caches, as
// in training; their share of a memory copy can therefore exceed 100%.
//
//   kernels_bench            a Markdown table
//   kernels_bench --json     one JSON object per line
//   kernels_bench --blas libopenblas.so.0        also OpenBLAS's products (installed by tools/install bench)

#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/multiply_adds.h"
#include "core/hash.h"
#include "core/json.h"
#include "kernels/convert.h"
#include "kernels/cross.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/fm.h"
#include "kernels/gemm.h"
#include "kernels/half_rows.h"
#include "kernels/hot_rows.h"
#include "kernels/initialize.h"
#include "kernels/interaction.h"
#include "kernels/key_delta.h"
#include "kernels/loss.h"
#include "kernels/low_bits.h"
#include "kernels/optimizer.h"
#include "kernels/partition.h"
#include "kernels/quantize.h"
#include "kernels/rows.h"
#include "kernels/sparse_values.h"
#include "kernels/subnormals.h"
#include "kernels/top_k.h"
#include "kernels/unique.h"

namespace {

using namespace tarn;
using namespace tarn::kernels;

struct Options {
  std::uint32_t repetitions = 7;
  std::size_t mib = 256;  // size of the arrays of streams and random rows
  bool json = false;
  std::string blas;  // a library with the C interface of BLAS; empty: none
};

// Another library's matrix product, on one thread: C = A * B, all row-major and packed.
class OtherBlas {
 public:
  explicit OtherBlas(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw CLI::ValidationError("--blas", dlerror());
    sgemm_ = reinterpret_cast<Sgemm>(dlsym(handle, "cblas_sgemm"));
    if (sgemm_ == nullptr) throw CLI::ValidationError("--blas", library + " has no cblas_sgemm");
    if (auto* threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads"))) threads(1);
  }

  void Multiply(std::size_t m, std::size_t n, std::size_t k, const float* a, const float* b, float* c) const {
    constexpr int kRowMajor = 101, kNoTranspose = 111;
    const auto rows = int(m), columns = int(n), inner = int(k);
    sgemm_(kRowMajor, kNoTranspose, kNoTranspose, rows, columns, inner, 1, a, inner, b, columns, 0, c, columns);
  }

 private:
  using Sgemm = void (*)(int order, int a_transposed, int b_transposed, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm sgemm_;
};

struct Figure {
  std::string name;
  double amount = 0;  // per second, in `unit`
  const char* unit = "";
  double limit = 0;  // in the same unit; 0: none
};

std::vector<float> Floats(std::size_t n) {
  SplitMix random(n);
  std::vector<float> out(n);
  for (float& v : out) v = static_cast<float>(random.Unit() * 2 - 1);
  return out;
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), n_(options.mib * (std::size_t{1} << 20) / 4) {
    if (!options.blas.empty()) other_blas_.emplace(options.blas);
  }

  void Run() {
    Limits();
    Streams();
    Rows();
    Keys();
    HotRowsFound();
    Embeddings();
    Layers();
    Products();
  }

 private:
  // The median time of one call, in seconds; the first call is not counted.
  double Seconds(const std::function<void()>& call) {
    std::vector<double> times;
    for (std::uint32_t i = 0; i <= options_.repetitions; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    times.erase(times.begin());
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  void Print(const Figure& figure) {
    if (options_.json) {
      Json json = {{"kernel", figure.name}, {"value", figure.amount}, {"unit", figure.unit}};
      if (figure.limit != 0) json["limit"] = figure.limit;
      fmt::print("{}\n", JsonText(json));
    } else {
      const std::string share = figure.limit != 0 ? fmt::format("{:.0f}%", 100 * figure.amount / figure.limit) : "";
      fmt::print("| {} | {:.1f} {} | {} |\n", figure.name, figure.amount, figure.unit, share);
    }
    std::fflush(stdout);
  }

  // Compares a call that reads and writes `bytes` with a copy.
  void Moves(const std::string& name, double bytes, const std::function<void()>& call) {
    Print({name, bytes / Seconds(call) / 1e9, "GB/s", copy_});
  }
  void Multiplies(const std::string& name, double operations, const std::function<void()>& call) {
    Print({name, operations / Seconds(call) / 1e9, "GFLOP/s", peak_});
  }
  void Counts(const std::string& name, double items, const std::function<void()>& call) {
    Print({name, items / Seconds(call) / 1e6, "M keys/s", 0});
  }

  void Limits() {
    if (!options_.json) fmt::print("| kernel | rate | of the limit |\n| --- | --- | --- |\n");
    a_ = Floats(n_);
    b_.assign(n_, 0.0f);
    const double bytes = 2.0 * static_cast<double>(n_) * 4;
    copy_ = bytes / Seconds([&] { std::memcpy(b_.data(), a_.data(), n_ * 4); }) / 1e9;
    Print({"memory copy", copy_, "GB/s", 0});
    double done = 0;
    const double seconds = Seconds([&] { done = bench::MultiplyAdds(4e9); });
    const double multiply_adds = done / seconds / 1e9;
    Print({"multiply-adds in registers", multiply_adds, "GFLOP/s", 0});
    const std::size_t m = 1536;
    const std::vector<float> x = Floats(m * m), w = Floats(m * m);
    std::vector<float> y(m * m);
    peak_ = 2.0 * m * m * m / Seconds([&] { Gemm({m, m, m}, 1, {x.data(), m}, {w.data(), m}, 0, y.data(), m); }) / 1e9;
    Print({"matrix product of 1,536 x 1,536", peak_, "GFLOP/s", multiply_adds});
  }

  void Streams() {
    const auto n = static_cast<double>(n_);
    std::vector<std::uint16_t> half(n_);
    Moves("fp32 to bf16", 6 * n, [&] { FloatToBf16(n_, a_.data(), half.data()); });
    Moves("bf16 to fp32", 6 * n, [&] { Bf16ToFloat(n_, half.data(), b_.data()); });
    Moves("fp32 to fp16", 6 * n, [&] { FloatToFp16(n_, a_.data(), half.data()); });
    Moves("fp16 to fp32", 6 * n, [&] { Fp16ToFloat(n_, half.data(), b_.data()); });
    std::vector<std::byte> bytes(n_ / 64 * Int8RowBytes(64));
    Moves("int8 rows of 64, encode", 5.06 * n, [&] { EncodeInt8Rows(64, n_ / 64, a_.data(), bytes.data()); });
    Moves("int8 rows of 64, decode", 5.06 * n, [&] { DecodeInt8Rows(64, n_ / 64, bytes.data(), b_.data()); });
    for (const auto codec : {ValueCodec::kQsgd, ValueCodec::kTernary, ValueCodec::kSign, ValueCodec::kOneBit}) {
      const double moved = 4 * n + double(CodecRowBytes(codec, 64)) / 64 * n;
      Moves(fmt::format("{} rows of 64, encode", Name(codec)), moved,
            [&] { EncodeLowBits(codec, 64, n_ / 64, a_.data(), bytes.data()); });
      Moves(fmt::format("{} rows of 64, decode", Name(codec)), moved,
            [&] { DecodeLowBits(codec, 64, n_ / 64, bytes.data(), b_.data()); });
    }
    Moves("add", 12 * n, [&] { Add(n_, a_.data(), b_.data()); });
    Moves("squared norm", 4 * n, [&] { sink_ = SquaredNorm(n_, a_.data()); });
    TopKScratch scratch;
    std::vector<std::uint32_t> index(n_ / 100);
    std::vector<float> values(n_ / 100);
    Moves("top 1%", 12 * n, [&] { TopK(n_, n_ / 100, a_.data(), index.data(), values.data(), scratch); });
    const std::vector<float> labels(n_ / 4, 1.0f);
    std::vector<float> gradients(n_ / 4);
    Moves("logistic loss", 3 * n, [&] { LogisticLoss(n_ / 4, a_.data(), labels.data(), 1, gradients.data()); });
    const std::uint32_t classes = 10;
    const std::vector<float> class_labels(n_ / classes, 3.0f);
    std::vector<double> losses(class_labels.size());
    std::vector<std::uint32_t> correct(class_labels.size());
    Moves("softmax cross-entropy, 10 classes", 8 * n, [&] {
      SoftmaxCrossEntropyByRow(class_labels.size(), classes, a_.data(), class_labels.data(), 1, b_.data(),
                               losses.data(), correct.data());
    });
    std::vector<std::byte> sparse(SparseBytesMax(n_ / 8));
    std::vector<float> mostly_zero(n_ / 8);
    for (std::size_t i = 0; i < mostly_zero.size(); i += 10) mostly_zero[i] = a_[i];
    const std::size_t sparse_bytes =
        std::size_t(EncodeSparse(mostly_zero.size(), mostly_zero.data(), sparse.data()) - sparse.data());
    const double sparse_moved = 4.0 * double(mostly_zero.size()) + double(sparse_bytes);
    Moves("sparse values, 10% nonzero, encode", sparse_moved,
          [&] { EncodeSparse(mostly_zero.size(), mostly_zero.data(), sparse.data()); });
    Moves("sparse values, 10% nonzero, decode", sparse_moved,
          [&] { sink_ = DecodeSparse(mostly_zero.size(), std::span(sparse).first(sparse_bytes), b_.data()) ? 1 : 0; });
    const InitializerSpec normal{InitializerKind::kNormal, 0.0f, 0.01f};
    std::vector<Key> new_keys(n_ / 16 / 8);
    std::iota(new_keys.begin(), new_keys.end(), Key{0});
    Moves("initial values, normal, rows of 16", 4 * n / 8, [&] { InitializeRows(normal, 1, new_keys, 16, b_.data()); });
    Moves("initial values, normal, rows of 16, one by one", 4 * n / 8, [&] {
      for (const Key key : new_keys) InitializeRow(normal, 1, key, {b_.data() + key * 16, 16});
    });
  }

  // Random rows: the same bytes as a copy, in another order.
  void Rows() {
    for (const std::uint32_t dim : {16u, 64u}) {
      const std::size_t rows = n_ / dim, picked = rows / 4;
      SplitMix random(dim);
      std::vector<float*> pointers(picked);
      for (float*& p : pointers) p = a_.data() + random.Below(rows) * dim;
      const double bytes = double(picked) * dim * 4;
      Moves(fmt::format("gather of random rows of {}", dim), 2 * bytes,
            [&] { GatherRows(dim, picked, pointers.data(), b_.data()); });
      Moves(fmt::format("gather of random rows of {} as bf16", dim), 1.5 * bytes, [&] {
        GatherRowsEncoded(ValueCodec::kBf16, dim, picked, pointers.data(), reinterpret_cast<std::byte*>(b_.data()));
      });
      HalfRows(dim, picked, random);
      for (const char* kind :
           {"sgd", "momentum", "nesterov", "adagrad", "row_wise_adagrad", "rmsprop", "adam", "adamw", "ftrl"})
        Apply(kind, dim, picked / 2, random);
    }
  }

  // Rows stored as bf16, written with stochastic rounding.
  void HalfRows(std::uint32_t dim, std::size_t picked, SplitMix& random) {
    std::vector<std::uint16_t> table(n_);
    std::vector<std::uint16_t*> rows(picked);
    std::vector<std::uint64_t> seeds(picked);
    for (std::size_t i = 0; i < picked; ++i) {
      rows[i] = table.data() + random.Below(n_ / dim) * dim;
      seeds[i] = i;
    }
    const double bytes = double(picked) * dim * 6;
    Moves(fmt::format("random rows of {} stored as bf16, read", dim), bytes,
          [&] { WidenRows(ValueCodec::kBf16, dim, picked, rows.data(), b_.data()); });
    Moves(fmt::format("random rows of {} stored as bf16, written", dim), bytes,
          [&] { NarrowRows(ValueCodec::kBf16, dim, picked, a_.data(), seeds.data(), rows.data()); });
  }

  void Keys() {
    const std::size_t keys = 2'000'000;
    SplitMix random(3);
    std::vector<Key> given(keys), unique(keys);
    for (Key& key : given) key = random.Below(random.Below(keys) + 1);  // some keys are frequent
    std::vector<std::uint32_t> inverse(keys);
    UniqueScratch scratch;
    Counts("unique keys of 2 M", double(keys),
           [&] { sink_ = double(UniqueKeys(given, unique.data(), inverse.data(), scratch)); });
    const std::size_t batch = 10'000;  // in the cache
    Counts("unique keys of 2 M in batches of 10 k", double(keys), [&] {
      for (std::size_t b = 0; b < keys; b += batch)
        sink_ = double(UniqueKeys(std::span(given).subspan(b, batch), unique.data(), inverse.data(), scratch));
    });
    const std::uint32_t partitions = 64;
    std::vector<std::uint32_t> partition_of(keys), order(keys), offsets(partitions + 1);
    for (std::size_t i = 0; i < keys; ++i) partition_of[i] = std::uint32_t(given[i] % partitions);
    Counts("2 M keys by 64 partitions", double(keys),
           [&] { GroupByPartition(partition_of, partitions, order.data(), offsets.data()); });
    std::vector<std::byte> coded(DeltaBytesMax(keys));
    const std::size_t coded_bytes = EncodeKeys(given, coded.data());
    Counts("delta-coded keys below 2 M, encode", double(keys),
           [&] { sink_ = double(EncodeKeys(given, coded.data())); });
    Counts("delta-coded keys below 2 M, decode", double(keys),
           [&] { sink_ = DecodeKeys(keys, std::span(coded).first(coded_bytes), unique.data()) ? 1 : 0; });
  }

  void Apply(const char* kind, std::uint32_t dim, std::size_t picked, SplitMix& random) {
    const OptimizerSpec spec{.kind = kind, .learning_rate = 1e-4f};
    const std::uint32_t slot_floats = SlotFloats(kind, dim), row = dim + slot_floats;
    const std::size_t rows = n_ / row;
    std::vector<float> table(rows * row, 0.01f);
    std::vector<float*> values(picked), slots(picked);
    for (std::size_t i = 0; i < picked; ++i) {
      values[i] = table.data() + random.Below(rows) * row;
      slots[i] = values[i] + dim;
    }
    // Rows are read and written, gradients are read.
    const double bytes = double(picked) * 4 * (2 * row + dim);
    Moves(fmt::format("{} of random rows of {}", Name(kind), dim), bytes,
          [&] { ApplyOptimizer(spec, Clock(1), dim, picked, values.data(), slots.data(), a_.data()); });
  }

  // A half full cache of rows of 64 values: all keys that are looked up are found.
  void HotRowsFound() {
    const std::uint32_t dim = 64, batch = 20'000, batches = 40;
    const auto hot = MakeHotRows({.dim = dim, .rows = 2 * batch * batches, .batch_keys_max = batch});
    std::vector<Key> keys(batch);
    std::vector<std::uint32_t> slots(batch), missing(batch);
    std::uint32_t missing_count = 0, next = 0;
    const auto find = [&](std::uint32_t number) {
      for (std::uint32_t i = 0; i < batch; ++i) keys[i] = Key{number} * batch + i;
      hot->Find(batch, keys.data(), Clock(0), slots.data(), missing.data(), &missing_count);
    };
    for (std::uint32_t number = 0; number < batches; ++number) {
      find(number);
      hot->Insert(batch, keys.data(), Clock(0), slots.data());
      hot->Fill(batch, nullptr, slots.data(), a_.data(), Clock(1));
      hot->Unpin(batch, slots.data());
    }
    Counts("hot rows of 64, found", batch, [&] {
      find(next++ % batches);
      hot->Unpin(batch, slots.data());
    });
    Counts("hot rows of 64, found and read", batch, [&] {
      find(next++ % batches);
      hot->Read(batch, slots.data(), b_.data());
      hot->Unpin(batch, slots.data());
    });
  }

  void Embeddings() {
    const std::size_t samples = 2048;
    const std::uint32_t fields = 26, dim = 64, unique = 20'000;
    SplitMix random(4);
    const std::vector<float> rows = Floats(std::size_t{unique} * dim);
    std::vector<std::uint32_t> inverse(samples * fields), offsets(samples + 1);
    for (std::uint32_t& i : inverse) i = static_cast<std::uint32_t>(random.Below(unique));
    for (std::uint32_t s = 0; s <= samples; ++s) offsets[s] = s * fields;
    const std::size_t width = fields * dim;
    std::vector<float> out(samples * width), sums(samples * dim), grad(rows.size());
    const double moved = double(samples) * fields * dim * 4;
    Moves("embeddings concatenated, 26 x 64", 2 * moved,
          [&] { EmbeddingConcatForward(samples, fields, dim, rows.data(), inverse.data(), out.data(), width); });
    Moves("embeddings concatenated, 26 x 64, backward", 3 * moved,
          [&] { EmbeddingConcatBackward(samples, fields, dim, out.data(), width, inverse.data(), grad.data()); });
    Moves("embedding bag, 26 of 64", moved + double(samples) * dim * 4, [&] {
      EmbeddingBagForward(samples, dim, rows.data(), inverse.data(), offsets.data(), nullptr, sums.data());
    });
    const std::vector<float> weights = Floats(samples * fields);
    Moves("embedding bag, 26 of 64, weighted", moved + double(samples) * dim * 4, [&] {
      EmbeddingBagForward(samples, dim, rows.data(), inverse.data(), offsets.data(), weights.data(), sums.data());
    });
    Moves("embedding bag, 26 of 64, backward", 2 * moved + double(samples) * dim * 4, [&] {
      EmbeddingBagBackward(samples, dim, sums.data(), inverse.data(), offsets.data(), nullptr, grad.data());
    });
    std::vector<float> logits(samples);
    Moves("factorization machine, 26 of 64", moved + double(samples) * dim * 4, [&] {
      FmForward(samples, dim, rows.data(), inverse.data(), offsets.data(), nullptr, logits.data(), sums.data());
    });
    Moves("factorization machine, 26 of 64, backward", 3 * moved + double(samples) * dim * 4, [&] {
      FmBackward(samples, dim, rows.data(), inverse.data(), offsets.data(), nullptr, logits.data(), sums.data(),
                 grad.data());
    });
    Moves("rows of 64 summed by index", 2 * moved,
          [&] { ReduceByIndex(inverse.size(), dim, out.data(), inverse.data(), unique, grad.data()); });
  }

  void Layers() {
    const std::size_t samples = 2048;
    const std::uint32_t dim = 64, vectors = 27;
    const std::vector<float> in = Floats(samples * vectors * dim);
    std::vector<float> dots(samples * InteractionWidth(vectors, dim)), grad_in(in.size());
    const double products = double(samples) * vectors * (vectors - 1) * dim;
    Multiplies("dot interaction of 27 x 64", products,
               [&] { InteractionForward(samples, vectors, dim, in.data(), dots.data()); });
    Multiplies("dot interaction of 27 x 64, backward", 2 * products,
               [&] { InteractionBackward(samples, vectors, dim, in.data(), dots.data(), grad_in.data()); });
    Moves("cross layer, forward", 16.0 * double(in.size()),
          [&] { CrossForward(in.size(), in.data(), a_.data(), in.data(), grad_in.data()); });
    std::vector<float> grad_y(in.size());
    Moves("cross layer, backward", 24.0 * double(in.size()),
          [&] { CrossBackward(in.size(), in.data(), a_.data(), in.data(), grad_y.data(), grad_in.data()); });
  }

  void Products() {
    for (const auto& [in, out] :
         {std::pair<std::size_t, std::size_t>{13, 512}, {512, 256}, {256, 64}, {415, 512}, {512, 512}, {256, 1}}) {
      const LinearShape shape{.rows = 2048, .in = in, .out = out};
      const std::vector<float> x = Floats(2048 * in), w = Floats(in * out), bias = Floats(out);
      std::vector<float> y(2048 * out), dy = Floats(2048 * out), dx(x.size()), dw(w.size()), dbias(out);
      const double operations = 2.0 * 2048 * double(in) * double(out);
      Multiplies(fmt::format("layer {} to {}, forward", in, out), operations,
                 [&] { LinearForward(shape, x.data(), w.data(), bias.data(), true, y.data()); });
      Multiplies(fmt::format("layer {} to {}, backward", in, out), 2 * operations, [&] {
        LinearBackward(shape, x.data(), w.data(), y.data(), true, dy.data(), dx.data(), dw.data(), dbias.data());
      });
      Multiplies(fmt::format("layer {} to {}, forward in bf16", in, out), operations, [&] {
        LinearForward({2048, in, out, Precision::kBf16}, x.data(), w.data(), bias.data(), true, y.data());
      });
      if (other_blas_) CompareProducts(in, out, x.data(), w.data(), y.data());
    }
  }

  // Compares a layer's product, without bias and ReLU, with that of the other library.
  void CompareProducts(std::size_t in, std::size_t out, const float* x, const float* w, float* y) {
    const double operations = 2.0 * 2048 * double(in) * double(out);
    Multiplies(fmt::format("layer {} to {}, only its product", in, out), operations,
               [&] { Gemm({2048, out, in}, 1, {x, in}, {w, out}, 0, y, out); });
    Multiplies(fmt::format("layer {} to {}, the same by {}", in, out, options_.blas), operations,
               [&] { other_blas_->Multiply(2048, out, in, x, w, y); });
  }

  Options options_;
  std::optional<OtherBlas> other_blas_;
  std::size_t n_;
  std::vector<float> a_, b_;
  double copy_ = 0, peak_ = 0;
  volatile double sink_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Measures each kernel on one thread and compares it with a memory copy or the largest matrix product."};
  app.add_option("--repetitions", options.repetitions, "timed calls; the result is the median")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--mib", options.mib, "size of the arrays of streams and random rows, in MiB; must exceed the caches")
      ->capture_default_str()
      ->check(CLI::Range(16, 8192));
  app.add_flag("--json", options.json, "print one JSON object per line instead of a table");
  app.add_option("--blas", options.blas, "also measure the products of this library, such as libopenblas.so.0");
  CLI11_PARSE(app, argc, argv);
  const SubnormalsAreZero as_in_training;
  try {
    Bench(options).Run();
  } catch (const CLI::Error& error) {
    return app.exit(error);
  }
}
