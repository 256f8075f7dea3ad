#include "kernels/embedding.h"

#include <algorithm>
#include <numeric>

#include "bench/gpu_bench/parts.h"
#include "bench/zipf.h"
#include "core/hash.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/interaction.h"
#include "kernels/optimizer.h"
#include "kernels/unique.h"

namespace tarn::bench {
namespace {

constexpr double kGiga = 1e9;

std::vector<Setting> Shape(const Sizes& s) {
  return {{"batch", std::uint64_t{s.batch}}, {"fields", std::uint64_t{s.fields}}, {"dim", std::uint64_t{s.dim}}};
}

// The occurrences of keys in a batch, duplicates included: the row of each, and the number of distinct rows.
struct Occurrences {
  std::vector<std::uint32_t> inverse;
  std::size_t unique = 0;
};

Occurrences PowerLawOccurrences(const std::vector<Key>& keys) {
  Occurrences out{std::vector<std::uint32_t>(keys.size())};
  std::vector<Key> unique(keys.size());
  kernels::UniqueScratch scratch;
  out.unique = kernels::UniqueKeys(keys, unique.data(), out.inverse.data(), scratch);
  // In random order, so that frequent rows are not neighbours.
  const std::vector<std::uint32_t> order = Permutation(out.unique);
  for (std::uint32_t& row : out.inverse) row = order[row];
  return out;
}

class Embedding {
 public:
  explicit Embedding(const Run& run)
      : run_(run),
        place_(run.place),
        sizes_(run.sizes),
        occurrences_(sizes_.batch * sizes_.fields),
        keys_(MakeKeys(sizes_, 1)),
        power_law_(PowerLawOccurrences(keys_)),
        rows_(place_.Floats(occurrences_ * sizes_.dim, "rows")),
        wide_(place_.Floats(occurrences_ * sizes_.dim, "a batch's embeddings")),
        inverse_(place_.Upload(power_law_.inverse, "an index")),
        grouping_(place_, occurrences_, sizes_.dim) {}

  void Measure() {
    Forward();
    Backward();
    Unique();
    Interaction();
    Narrow();
  }

 private:
  // Concatenates the rows of each sample, with distinct rows and with rows of a power law; and sums them (bag).
  void Forward() {
    const double row_bytes = double(sizes_.dim) * 4, moved = double(occurrences_) * row_bytes;
    const Array all = place_.Upload(Permutation(occurrences_), "an index");
    const auto concat = [&](const Array& inverse) {
      return [this, &inverse] {
        place_.Run([&](auto&... on) {
          kernels::EmbeddingConcatForward(on..., sizes_.batch, sizes_.fields, sizes_.dim, rows_.as<float>(),
                                          inverse.as<std::uint32_t>(), wide_.as<float>(), Width());
        });
      };
    };
    Report("kernel.embedding_forward", 2 * moved, concat(all), occurrences_);
    Report("kernel.embedding_forward_power_law", 2 * moved, concat(inverse_), power_law_.unique);
    std::vector<std::uint32_t> starts(sizes_.batch + 1);
    for (std::size_t s = 0; s <= sizes_.batch; ++s) starts[s] = static_cast<std::uint32_t>(s * sizes_.fields);
    const Array offsets = place_.Upload(starts, "offsets");
    const auto bag = [&] {
      place_.Run([&](auto&... on) {
        kernels::EmbeddingBagForward(on..., sizes_.batch, sizes_.dim, rows_.as<float>(), all.as<std::uint32_t>(),
                                     offsets.as<std::uint32_t>(), nullptr, wide_.as<float>());
      });
    };
    Report("kernel.embedding_bag_forward", moved + double(sizes_.batch) * row_bytes, bag, occurrences_);
  }

  // Bytes that must be moved: the gradient of every occurrence, and rows with their slot, read and written.
  void Backward() {
    const std::size_t unique = power_law_.unique;
    const std::uint32_t dim = sizes_.dim;
    const Array gradients = place_.Allocate(unique * dim * sizeof(float), "gradients");
    const Array slots = place_.Floats(unique, "slots");
    std::vector<float*> row_at(unique), slot_at(unique);
    for (std::size_t i = 0; i < unique; ++i)
      row_at[i] = rows_.as<float>() + i * dim, slot_at[i] = slots.as<float>() + i;
    const Array row_pointers = place_.Upload(row_at, "pointers"), slot_pointers = place_.Upload(slot_at, "pointers");
    place_.Run([&](auto&... on) { kernels::Fill(on..., unique, 1.0f, slots.as<float>()); });
    const OptimizerSpec spec{.kind = "row_wise_adagrad", .learning_rate = 1e-4f};
    Group();
    const auto step = [&](bool grouped) {
      return [&, grouped] {
        if (!grouped) Group();
        place_.Run([&]<typename... On>(On&... on) {
          kernels::Fill(on..., unique * dim, 0.0f, gradients.as<float>());
          if constexpr (sizeof...(On) != 0)
            kernels::EmbeddingConcatBackward(on..., sizes_.batch, sizes_.fields, dim, wide_.as<float>(), Width(),
                                             grouping_.segments(), gradients.as<float>());
          else
            kernels::EmbeddingConcatBackward(sizes_.batch, sizes_.fields, dim, wide_.as<float>(), Width(),
                                             inverse_.as<std::uint32_t>(), gradients.as<float>());
          kernels::ApplyOptimizer(on..., spec, Clock(1), dim, unique, row_pointers.as<float*>(),
                                  slot_pointers.as<float*>(), gradients.as<float>());
        });
      };
    };
    const double bytes = double(occurrences_) * dim * 4 + 2.0 * double(unique) * (dim + 1) * 4;
    Report("kernel.embedding_backward_adagrad", bytes, step(false), unique);
    Report("kernel.embedding_backward_adagrad_grouped", bytes, step(true), unique);
  }

  void Unique() {
    const Array keys = place_.Upload(keys_, "keys");
    const Array unique = place_.Allocate(occurrences_ * sizeof(Key), "keys");
    const Array inverse = place_.Allocate(occurrences_ * sizeof(std::uint32_t), "an index");
    const Array count = place_.Allocate(sizeof(std::uint32_t), "a count");
    const double seconds = SecondsOf(place_, run_.timing, [&] {
      place_.Run([&]<typename... On>(On&... on) {
        if constexpr (sizeof...(On) != 0)
          kernels::UniqueKeys(on..., occurrences_, keys.as<Key>(), unique.as<Key>(), inverse.as<std::uint32_t>(),
                              count.as<std::uint32_t>(), grouping_.sort(), grouping_.segments());
        else
          kernels::UniqueKeys(keys_, unique.as<Key>(), inverse.as<std::uint32_t>(), unique_scratch_);
      });
    });
    run_.Report("kernel.unique_keys", double(occurrences_) / seconds, "keys/s", Shape(sizes_),
                {{"unique", double(power_law_.unique)}});
  }

  void Interaction() {
    const std::uint32_t vectors = sizes_.fields, dim = sizes_.dim;  // as many vectors as wide_ has
    const std::size_t width = kernels::InteractionWidth(vectors, dim);
    const Array out = place_.Floats(sizes_.batch * width, "dot products");
    const double in_bytes = double(sizes_.batch) * double(Width()) * 4, out_bytes = double(sizes_.batch * width) * 4;
    Report("kernel.interaction_forward", in_bytes + out_bytes, [&] {
      place_.Run([&](auto&... on) {
        kernels::InteractionForward(on..., sizes_.batch, vectors, dim, wide_.as<float>(), out.as<float>());
      });
    });
    Report("kernel.interaction_backward", 2 * in_bytes + out_bytes, [&] {
      place_.Run([&](auto&... on) {
        kernels::InteractionBackward(on..., sizes_.batch, vectors, dim, wide_.as<float>(), out.as<float>(),
                                     rows_.as<float>());
      });
    });
  }

  void Narrow() {
    const std::size_t n = occurrences_ * sizes_.dim;
    Report("kernel.fp32_to_bf16", 6 * double(n), [&] {
      place_.Run([&](auto&... on) { kernels::FloatToBf16(on..., n, wide_.as<float>(), rows_.as<std::uint16_t>()); });
    });
  }

  void Group() {
    place_.Run([&]<typename... On>(On&... on) {
      if constexpr (sizeof...(On) != 0)
        kernels::GroupByRow(on..., occurrences_, inverse_.as<std::uint32_t>(), power_law_.unique, grouping_.sort(),
                            grouping_.segments());
    });
  }

  // Reports the gigabytes per second of a call that must move `bytes`. `unique`: the distinct rows that it reads; 0:
  // not reported.
  template <typename Call>
  void Report(const char* name, double bytes, Call call, std::size_t unique = 0) {
    std::vector<Setting> settings = Shape(sizes_);
    if (unique != 0) settings.emplace_back("unique_rows", std::uint64_t{unique});
    const double seconds = SecondsOf(place_, run_.timing, call);
    run_.Report(name, bytes / seconds / kGiga, "GB/s", std::move(settings), {{"us", seconds * 1e6}});
  }
  std::size_t Width() const { return std::size_t{sizes_.fields} * sizes_.dim; }

  const Run& run_;
  Place& place_;
  const Sizes& sizes_;
  std::size_t occurrences_;
  std::vector<Key> keys_;
  Occurrences power_law_;
  Array rows_, wide_, inverse_;
  Grouping grouping_;
  kernels::UniqueScratch unique_scratch_;
};

}  // namespace

std::vector<Key> MakeKeys(const Sizes& sizes, std::uint64_t seed) {
  SplitMix random(seed);
  const Zipf zipf(sizes.field_keys, sizes.skew);
  std::vector<Key> keys;
  keys.reserve(sizes.batch * sizes.fields);
  for (std::size_t r = 0; r < sizes.batch; ++r)
    for (std::uint32_t f = 0; f < sizes.fields; ++f) keys.push_back(Mix64(f * sizes.field_keys + zipf.Next(random)));
  return keys;
}

std::vector<std::uint32_t> Permutation(std::size_t n) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  SplitMix random(n);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

void MeasureEmbedding(const Run& run) { Embedding(run).Measure(); }

}  // namespace tarn::bench
