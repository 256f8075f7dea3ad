// Shows that grouping, selection and sums by row on a GPU agree with the CPU and with float64: with equal bits if the
// header requires it, otherwise in the order that it documents. Odd, empty and large sizes; outputs are poisoned first.
// Skipped, with the reason, if there is no GPU.
#include <algorithm>
#include <functional>

#include "kernels/embedding.h"
#include "kernels/fm.h"
#include "kernels/partition.h"
#include "kernels/positions.h"
#include "kernels/segments.h"
#include "kernels/top_k.h"
#include "kernels/unique.h"
#include "tests/unit/kernels/gpu_test_util.h"
#include "tests/unit/kernels/piece_sum.h"

namespace tarn::kernels {
namespace {

using Indices = std::vector<std::uint32_t>;

constexpr std::uint32_t kNothing = 0xdeadbeef;

class GpuSparseTest : public GpuFixture {
 protected:
  std::unique_ptr<SortScratch> Scratch(std::size_t items_max) {
    auto scratch = SortScratch::Make(stream(), items_max);
    EXPECT_TRUE(scratch.has_value()) << scratch.error().message;
    return std::move(*scratch);
  }

  std::unique_ptr<Segments> MakeSegments(std::size_t occurrences, std::size_t rows, std::uint32_t dim) {
    auto segments = Segments::Make(stream(), {.occurrences = occurrences, .rows = rows, .dim = dim});
    EXPECT_TRUE(segments.has_value()) << segments.error().message;
    return std::move(*segments);
  }

  // Segments of exactly this batch.
  std::unique_ptr<Segments> Grouped(const Indices& inverse, std::size_t n_rows, std::uint32_t dim) {
    const auto scratch = Scratch(inverse.size());
    auto segments = MakeSegments(inverse.size(), n_rows, dim);
    DeviceBuffer device = Upload(inverse);
    GroupByRow(stream(), inverse.size(), device.as<std::uint32_t>(), n_rows, *scratch, *segments);
    return segments;
  }
};

// n indices below `rows`. About half of them are row 2, if it exists, and none is the last row.
Indices SkewedIndices(std::size_t n, std::uint32_t rows, SplitMix& random) {
  Indices out(n);
  for (std::uint32_t& row : out) row = rows > 3 && random.Chance(0.5) ? 2 : std::uint32_t(random.Below(rows - 1));
  return out;
}

// The gradients of rows to which the terms of occurrences are added: in float32 and the order of kernels/segments.h,
// and in float64.
struct Sums {
  std::vector<float> in_pieces;
  std::vector<double> exact;
};

Sums Expected(std::uint32_t dim, const Indices& inverse, const std::vector<float>& there,
              const std::function<float(std::size_t, std::uint32_t)>& term) {
  Sums sums{there, {there.begin(), there.end()}};
  std::vector<Indices> occurrences(there.size() / dim);
  for (std::uint32_t o = 0; o < inverse.size(); ++o) occurrences[inverse[o]].push_back(o);
  for (std::size_t row = 0; row < occurrences.size(); ++row)
    for (std::uint32_t j = 0; j < dim; ++j) {
      std::vector<float> terms;
      for (const std::uint32_t o : occurrences[row]) terms.push_back(term(o, j));
      const std::size_t at = row * dim + j;
      sums.in_pieces[at] = AddInPieces(there[at], terms);
      for (const float t : terms) sums.exact[at] += double(t);
    }
  return sums;
}

void ExpectSums(const std::vector<float>& actual, const Sums& expected, std::size_t occurrences) {
  EXPECT_TRUE(SameBits(actual, expected.in_pieces)) << occurrences << " occurrences";
  ExpectNear(actual, expected.exact, 1e-6, std::sqrt(double(occurrences) + 1));
}

struct Shape {
  std::size_t occurrences;
  std::uint32_t rows, dim;
};

// All widths in batches of all sizes; the largest has a row of more than 64^3 occurrences.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const std::uint32_t dim : {1u, 3u, 4u, 8u, 16u, 60u, 64u, 100u, 128u, 130u, 260u})
    for (const std::size_t n : {0, 1, 5, 63, 64, 65, 129, 1000, 10'007}) shapes.push_back({n, 40, dim});
  for (const std::uint32_t dim : {1u, 4u}) shapes.push_back({600'011, 1000, dim});
  return shapes;
}

TEST_F(GpuSparseTest, ConcatBackward) {
  SplitMix random(1);
  for (const auto& [n, rows, dim] : Shapes())
    for (const std::uint32_t fields : {1u, 3u}) {
      const std::size_t samples = n / fields, stride = std::size_t{fields} * dim + (dim % 2 == 0 ? 4 : 1);
      const Indices inverse = SkewedIndices(samples * fields, rows, random);
      const std::vector<float> grad_out = RandomFloats(samples * stride, random);
      const std::vector<float> there = RandomFloats(std::size_t{rows} * dim, random);
      const auto segments = Grouped(inverse, rows, dim);
      DeviceBuffer d_out = Upload(grad_out), d_rows = Upload(there);
      EmbeddingConcatBackward(stream(), samples, fields, dim, d_out.as<float>(), stride, *segments, d_rows.as<float>());
      const Sums expected = Expected(dim, inverse, there, [&, f = fields, d = dim](std::size_t o, std::uint32_t j) {
        return grad_out[o / f * stride + o % f * d + j];
      });
      ExpectSums(Download<float>(d_rows), expected, inverse.size());
    }
}

// Bags of a slice of a batch, whose offsets do not begin at 0, some of them empty.
struct Bags {
  Indices offsets, inverse, sample_of;
  std::size_t base = 7, samples = 0;
};

Bags RandomBags(std::size_t n, std::uint32_t rows, SplitMix& random) {
  Bags b{.offsets = {7}, .inverse = SkewedIndices(n, rows, random)};
  while (b.sample_of.size() < n || b.samples < 3) {
    const std::size_t size = std::min<std::size_t>(random.Below(9), n - b.sample_of.size());
    b.sample_of.insert(b.sample_of.end(), size, std::uint32_t(b.samples++));
    b.offsets.push_back(std::uint32_t(b.base + b.sample_of.size()));
  }
  return b;
}

TEST_F(GpuSparseTest, BagBackward) {
  SplitMix random(2);
  for (const auto& [n, rows, dim] : Shapes())
    for (const bool weighted : {false, true}) {
      const Bags b = RandomBags(n, rows, random);
      const std::vector<float> weights = RandomFloats(b.base + n, random);
      const std::vector<float> grad_out = RandomFloats(b.samples * dim, random);
      const std::vector<float> there = RandomFloats(std::size_t{rows} * dim, random);
      const auto segments = Grouped(b.inverse, rows, dim);
      DeviceBuffer d_out = Upload(grad_out), d_offsets = Upload(b.offsets), d_weights = Upload(weights);
      DeviceBuffer d_rows = Upload(there);
      EmbeddingBagBackward(stream(), b.samples, dim, d_out.as<float>(), d_offsets.as<std::uint32_t>(),
                           weighted ? d_weights.as<float>() : nullptr, *segments, d_rows.as<float>());
      const Sums expected = Expected(dim, b.inverse, there, [&, d = dim](std::size_t o, std::uint32_t j) {
        return (weighted ? weights[b.base + o] : 1.0f) * grad_out[b.sample_of[o] * d + j];
      });
      ExpectSums(Download<float>(d_rows), expected, n);
    }
}

TEST_F(GpuSparseTest, BackwardOfFewDuplicatesHasTheBitsOfTheCpu) {
  SplitMix random(3);
  constexpr std::uint32_t kRows = 500, kDim = 20;
  const Indices inverse = RandomIndices(3000, kRows, random);
  const std::vector<float> grad_out = RandomFloats(1000 * 3 * kDim, random);
  std::vector<float> rows(kRows * kDim, 0.0f);
  const auto segments = Grouped(inverse, kRows, kDim);
  DeviceBuffer d_out = Upload(grad_out), d_rows = Upload(rows);
  EmbeddingConcatBackward(stream(), 1000, 3, kDim, d_out.as<float>(), 3 * kDim, *segments, d_rows.as<float>());
  EmbeddingConcatBackward(1000, 3, kDim, grad_out.data(), 3 * kDim, inverse.data(), rows.data());
  EXPECT_TRUE(SameBits(Download<float>(d_rows), rows));
}

// Floats that do not begin at a multiple of 16 bytes are copied one by one.
TEST_F(GpuSparseTest, BackwardOfUnalignedArrays) {
  SplitMix random(4);
  constexpr std::uint32_t kRows = 50, kDim = 8;
  const Indices inverse = SkewedIndices(2000, kRows, random);
  const std::vector<float> grad_out = RandomFloats(2000 * kDim + 1, random);
  const std::vector<float> there = RandomFloats(kRows * kDim + 1, random);
  const auto segments = Grouped(inverse, kRows, kDim);
  DeviceBuffer d_out = Upload(grad_out), d_rows = Upload(there);
  EmbeddingConcatBackward(stream(), 2000, 1, kDim, d_out.as<float>() + 1, kDim, *segments, d_rows.as<float>() + 1);
  const Sums expected = Expected(kDim, inverse, {there.begin() + 1, there.end()},
                                 [&](std::size_t o, std::uint32_t j) { return grad_out[1 + o * kDim + j]; });
  const std::vector<float> actual = Download<float>(d_rows);
  EXPECT_EQ(actual[0], there[0]);
  ExpectSums({actual.begin() + 1, actual.end()}, expected, 2000);
}

TEST_F(GpuSparseTest, SegmentsAndScratchAreReusedForManyBatches) {
  SplitMix random(5);
  const auto scratch = Scratch(20'000);
  const auto segments = MakeSegments(20'000, 300, 16);
  for (const std::size_t n : {20'000, 3, 0, 700, 65, 20'000}) {
    const Indices inverse = SkewedIndices(n, 300, random);
    const std::vector<float> grad_out = RandomFloats(n * 16, random), there = RandomFloats(300 * 16, random);
    DeviceBuffer device = Upload(inverse), d_out = Upload(grad_out), d_rows = Upload(there);
    GroupByRow(stream(), n, device.as<std::uint32_t>(), 300, *scratch, *segments);
    EmbeddingConcatBackward(stream(), n, 1, 16, d_out.as<float>(), 16, *segments, d_rows.as<float>());
    const Sums expected =
        Expected(16, inverse, there, [&](std::size_t o, std::uint32_t j) { return grad_out[o * 16 + j]; });
    ExpectSums(Download<float>(d_rows), expected, n);
  }
}

std::vector<Key> RandomKeys(std::size_t n, std::uint64_t distinct, SplitMix& random) {
  std::vector<Key> keys(n);
  for (Key& key : keys) key = Mix64(random.Below(distinct));
  return keys;
}

TEST_F(GpuSparseTest, UniqueKeysAscendAndGroupTheirOccurrences) {
  SplitMix random(6);
  constexpr std::uint32_t kDim = 4;
  const auto scratch = Scratch(200'001);
  const auto segments = MakeSegments(200'001, 200'001, kDim);
  for (const std::size_t n : {0, 1, 2, 33, 1000, 200'001})
    for (const std::uint64_t distinct : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{5000}, ~std::uint64_t{0}}) {
      std::vector<Key> keys = RandomKeys(n, distinct, random);
      if (n > 2) {
        keys[n / 2] = 0;
        keys[n - 1] = ~Key{0};
      }
      DeviceBuffer d_keys = Upload(keys), d_unique = Upload(std::vector<Key>(n, kNothing));
      DeviceBuffer d_inverse = Upload(Indices(n, kNothing)), d_count = Upload(Indices{kNothing});
      UniqueKeys(stream(), n, d_keys.as<Key>(), d_unique.as<Key>(), d_inverse.as<std::uint32_t>(),
                 d_count.as<std::uint32_t>(), *scratch, *segments);
      std::vector<Key> expected = keys;
      std::ranges::sort(expected);
      expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
      Indices expected_inverse;
      for (const Key key : keys)
        expected_inverse.push_back(std::uint32_t(std::ranges::lower_bound(expected, key) - expected.begin()));
      std::vector<Key> unique = Download<Key>(d_unique);
      EXPECT_EQ(Download<std::uint32_t>(d_count), Indices{std::uint32_t(expected.size())});
      unique.resize(expected.size());
      EXPECT_EQ(unique, expected);
      EXPECT_EQ(Download<std::uint32_t>(d_inverse), expected_inverse);
      UniqueKeys(stream(), n, d_keys.as<Key>(), d_keys.as<Key>(), d_inverse.as<std::uint32_t>(),
                 d_count.as<std::uint32_t>(), *scratch, *segments);
      std::vector<Key> in_place = Download<Key>(d_keys);
      in_place.resize(expected.size());
      EXPECT_EQ(in_place, expected);
      EXPECT_EQ(Download<std::uint32_t>(d_inverse), expected_inverse);

      const std::vector<float> grad_out = RandomFloats(n * kDim, random), there(expected.size() * kDim, 0.0f);
      DeviceBuffer d_out = Upload(grad_out), d_rows = Upload(there);
      EmbeddingConcatBackward(stream(), n, 1, kDim, d_out.as<float>(), kDim, *segments, d_rows.as<float>());
      const Sums sums = Expected(kDim, expected_inverse, there,
                                 [&](std::size_t o, std::uint32_t j) { return grad_out[o * kDim + j]; });
      ExpectSums(Download<float>(d_rows), sums, n);
    }
}

TEST_F(GpuSparseTest, PositionsAndTheirInverse) {
  SplitMix random(9);
  for (const std::size_t n : {0, 1, 257, 100'003})
    for (const std::uint64_t salt : {std::uint64_t{0}, ~std::uint64_t{0}, random.Next()}) {
      std::vector<Key> keys = RandomKeys(n, ~std::uint64_t{0}, random);
      if (n > 2) keys[1] = 0, keys[n - 1] = ~Key{0};
      std::vector<Position> positions(n);
      PositionsOf(n, keys.data(), salt, positions.data());
      DeviceBuffer d_keys = Upload(keys), d_positions = Upload(std::vector<Position>(n, kNothing));
      PositionsOf(stream(), n, d_keys.as<Key>(), salt, d_positions.as<Position>());
      EXPECT_EQ(Download<Position>(d_positions), positions);
      DeviceBuffer d_back = Upload(std::vector<Key>(n, kNothing));
      KeysAt(stream(), n, d_positions.as<Position>(), salt, d_back.as<Key>());
      EXPECT_EQ(Download<Key>(d_back), keys);
    }
}

TEST_F(GpuSparseTest, GroupsByPartition) {
  SplitMix random(7);
  const auto scratch = Scratch(200'001);
  for (const std::size_t n : {0, 1, 2, 63, 1000, 200'001})
    for (const std::uint32_t partitions : {1u, 2u, 5u, 64u, 4096u}) {
      const Indices partition_of = RandomIndices(n, partitions, random);
      Indices permutation(n, kNothing), offsets(partitions + 1, kNothing);
      DeviceBuffer d_of = Upload(partition_of), d_permutation = Upload(permutation), d_offsets = Upload(offsets);
      GroupByPartition(stream(), n, d_of.as<std::uint32_t>(), partitions, d_permutation.as<std::uint32_t>(),
                       d_offsets.as<std::uint32_t>(), *scratch);
      GroupByPartition(partition_of, partitions, permutation.data(), offsets.data());
      EXPECT_EQ(Download<std::uint32_t>(d_permutation), permutation);
      EXPECT_EQ(Download<std::uint32_t>(d_offsets), offsets);
    }
}

TEST_F(GpuSparseTest, TopK) {
  SplitMix random(8);
  const auto scratch = Scratch(100'003);
  TopKScratch cpu_scratch;
  for (const std::size_t n : {0, 1, 2, 63, 1000, 100'003})
    for (const bool ties : {false, true}) {
      std::vector<float> in = RandomFloats(n, random);
      if (ties)
        for (float& v : in) v = float(int(random.Below(5)) - 2) * 0.5f;
      if (n > 10) std::ranges::copy(std::vector{kPoison, -HUGE_VALF, 1e-44f, -0.0f, HUGE_VALF}, in.begin() + 3);
      for (const std::size_t k : {std::size_t{0}, n / 100, n / 2, n}) {
        Indices index(k, kNothing);
        std::vector<float> values = Poisoned(k);
        DeviceBuffer d_in = Upload(in), d_index = Upload(index), d_values = Upload(values);
        TopK(stream(), n, k, d_in.as<float>(), d_index.as<std::uint32_t>(), d_values.as<float>(), *scratch);
        TopK(n, k, in.data(), index.data(), values.data(), cpu_scratch);
        EXPECT_EQ(Download<std::uint32_t>(d_index), index) << k << " of " << n;
        EXPECT_TRUE(SameBits(Download<float>(d_values), values)) << k << " of " << n;
      }
    }
}

TEST_F(GpuSparseTest, RowNorms) {
  SplitMix random(9);
  for (const std::uint32_t dim : {1u, 3u, 8u, 33u, 128u})
    for (const std::size_t n : {0, 1, 17, 5000}) {
      std::vector<float> rows = RandomFloats(n * dim, random), norms = Poisoned(n);
      if (n > 2) {
        rows[dim] = kPoison;
        rows[2 * dim] = -HUGE_VALF;
      }
      DeviceBuffer d_rows = Upload(rows), d_norms = Upload(norms);
      RowNorms(stream(), dim, n, d_rows.as<float>(), d_norms.as<float>());
      RowNorms(dim, n, rows.data(), norms.data());
      ExpectSameNumbers(Download<float>(d_norms), norms);
    }
}

TEST_F(GpuSparseTest, FactorizationMachine) {
  SplitMix random(11);
  for (const auto& [n, rows, dim] : Shapes())
    for (const bool weighted : {false, true}) {
      const Bags b = RandomBags(n, rows, random);
      const std::vector<float> values = RandomFloats(std::size_t{rows} * dim, random);
      const std::vector<float> weights = RandomFloats(b.base + n, random), grad_out = RandomFloats(b.samples, random);
      const float* x = weighted ? weights.data() : nullptr;
      Indices inverse(b.base, 0);  // of the whole batch, which the offsets count from
      inverse.insert(inverse.end(), b.inverse.begin(), b.inverse.end());
      std::vector<float> out = Poisoned(b.samples), sums = Poisoned(b.samples * dim);
      DeviceBuffer d_values = Upload(values), d_inverse = Upload(inverse), d_offsets = Upload(b.offsets);
      DeviceBuffer d_weights = Upload(weights), d_grad = Upload(grad_out), d_out = Upload(out), d_sums = Upload(sums);
      const float* d_x = weighted ? d_weights.as<float>() : nullptr;
      FmForward(stream(), b.samples, dim, d_values.as<float>(), d_inverse.as<std::uint32_t>(),
                d_offsets.as<std::uint32_t>(), d_x, d_out.as<float>(), d_sums.as<float>());
      FmForward(b.samples, dim, values.data(), inverse.data(), b.offsets.data(), x, out.data(), sums.data());
      EXPECT_TRUE(SameBits(Download<float>(d_out), out));
      EXPECT_TRUE(SameBits(Download<float>(d_sums), sums));

      const std::vector<float> there = RandomFloats(values.size(), random);
      const auto segments = Grouped(b.inverse, rows, dim);
      DeviceBuffer d_rows = Upload(there);
      FmBackward(stream(), b.samples, dim, d_values.as<float>(), d_offsets.as<std::uint32_t>(), d_x, d_grad.as<float>(),
                 d_sums.as<float>(), segments.get(), d_rows.as<float>());
      const Sums expected = Expected(dim, b.inverse, there, [&, d = dim](std::size_t o, std::uint32_t j) {
        const std::size_t s = b.sample_of[o];
        const float factor = x == nullptr ? 1.0f : x[b.base + o];
        return grad_out[s] * factor * (sums[s * d + j] - factor * values[b.inverse[o] * d + j]);
      });
      const std::vector<float> actual = Download<float>(d_rows);
      EXPECT_TRUE(SameBits(actual, expected.in_pieces));
      ExpectNear(actual, expected.exact, 1e-5, std::sqrt(double(n) + 1));
    }
}

TEST_F(GpuSparseTest, FactorizationMachineOfRowsOfItsOwn) {
  SplitMix random(12);
  for (const std::uint32_t dim : {1u, 8u, 33u})
    for (const std::size_t samples : {0, 1, 700}) {
      const Indices offsets = RandomOffsets(samples, 9, random);
      const std::size_t n = offsets.back();
      const std::vector<float> rows = RandomFloats(n * dim, random), weights = RandomFloats(n, random);
      const std::vector<float> grad_out = RandomFloats(samples, random);
      std::vector<float> out = Poisoned(samples), sums = Poisoned(samples * dim), grad = RandomFloats(n * dim, random);
      DeviceBuffer d_offsets = Upload(offsets), d_rows = Upload(rows), d_weights = Upload(weights);
      DeviceBuffer d_grad_out = Upload(grad_out), d_out = Upload(out), d_sums = Upload(sums), d_grad = Upload(grad);
      FmForward(stream(), samples, dim, d_rows.as<float>(), nullptr, d_offsets.as<std::uint32_t>(),
                d_weights.as<float>(), d_out.as<float>(), d_sums.as<float>());
      FmBackward(stream(), samples, dim, d_rows.as<float>(), d_offsets.as<std::uint32_t>(), d_weights.as<float>(),
                 d_grad_out.as<float>(), d_sums.as<float>(), nullptr, d_grad.as<float>());
      FmForward(samples, dim, rows.data(), nullptr, offsets.data(), weights.data(), out.data(), sums.data());
      FmBackward(samples, dim, rows.data(), nullptr, offsets.data(), weights.data(), grad_out.data(), sums.data(),
                 grad.data());
      EXPECT_TRUE(SameBits(Download<float>(d_out), out));
      EXPECT_TRUE(SameBits(Download<float>(d_grad), grad));
    }
}

}  // namespace
}  // namespace tarn::kernels
