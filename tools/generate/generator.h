// A synthetic click log like Criteo's. Row n is a pure function of (options, n), so any part can be generated in any
// order and in parallel, with the same bytes. Columns have the statistics of criteo_fields.h.
//
// The labels come from a planted teacher: y ~ Bernoulli(sigmoid(z)) with
//
//   z = bias + 1.6 SF sum_j a_j (log1p I_j - mu_j) / sd_j        [I_j missing: -0.7 SF a_j]
//            + SC sum_f sigma_f h(r_f) N(f, r_f)
//            + 0.24 SI sum_{(f, g) in kPairs} h(r_f) h(r_g) <v_f, v_g> / 2,     h(r) = 1 / sqrt(1 + (r - 1) / 300),
//
// where N and the four elements of v are standard normals hashed from (seed, column, rank) and are never stored; a
// missing category adds nothing. So z is known for every row, and with it the best AUC and log-loss that any model
// can reach.
//
// Only additions, multiplications, divisions and square roots of IEEE 754 are used (kernels/math.h, not the C library,
// whose functions differ in the last bit between versions): the same bytes on every machine.
//
//   Generator generator({.seed = 7});
//   Row row;
//   generator.Make(0, &row);
//   end = WriteLine(row, line);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "tools/generate/criteo_fields.h"

namespace tarn::generate {

// Strengths of the teacher's parts.
struct Teacher {
  double numeric = 1.6;      // SF
  double categorical = 1.6;  // SC
  double interaction = 2.0;  // SI
  double bias = -1.735;
  friend bool operator==(const Teacher&, const Teacher&) = default;
};

// `profile`: "criteo" or "interaction" (more of the signal in pairs of columns); kInvalidArgument for others.
Expected<Teacher> TeacherOfProfile(std::string_view profile);

struct GeneratorOptions {
  std::uint64_t seed = 7;
  Teacher teacher;
  double skew = 1;                   // multiplies the exponents s: above 1, fewer keys get more of the rows
  double label_noise = 0;            // probability that a label is flipped; 0..0.5
  double drift = 0;                  // share of the ranks of every column that draw new weights each day; 0..1
  std::uint64_t day_rows = 100'000;  // rows of a day; matters with drift only
  std::uint64_t last_day = ~0ULL;    // rows of later days use the weights of this day
};

// Checks ranges. kInvalidArgument names the field, the value and what was expected.
Status Validate(const GeneratorOptions& options);

inline constexpr std::int64_t kMissingInteger = -1;  // the generator itself makes no negative integers
inline constexpr std::uint32_t kMissingRank = 0;

struct Row {
  bool label = false;
  double logit = 0;  // of the probability that `label` was drawn from, label noise included
  std::array<std::int64_t, kIntegerColumns> integers{};
  std::array<std::uint32_t, kCategoricalColumns> ranks{};  // 1..K
};

// Any thread may call Make at any time.
class Generator {
 public:
  // The options must be valid.
  explicit Generator(const GeneratorOptions& options);
  // Makes row n: integers, ranks, label and logit.
  void Make(std::uint64_t n, Row* row) const;

 private:
  // A column's inverse distribution function.
  struct Quantile {
    std::array<double, kHeadRanks> cumulative{};
    // Of the tail, p(r) ~ (r + q)^-s: low = (10.5 + q)^(1 - s), low + span = (K + 0.5 + q)^(1 - s).
    double low = 0, span = 0;
    double power = 0;  // 1 / (1 - s)
  };
  std::uint32_t RankAt(int column, double u) const;
  void DrawIntegers(std::uint64_t key, Row* row) const;
  void DrawRanks(std::uint64_t key, Row* row) const;
  double Logit(const Row& row, std::uint64_t day) const;
  std::uint64_t WeightKey(std::uint64_t seed, int column, std::uint32_t rank, std::uint64_t day) const;

  GeneratorOptions options_;
  std::uint64_t row_seed_, weight_seed_, factor_seed_;
  std::array<Quantile, kCategoricalColumns> quantiles_;
};

// The 32-bit value of a rank of a column (0 = C1), printed as eight hexadecimal digits; distinct for distinct ranks.
std::uint32_t ValueOfRank(int column, std::uint32_t rank);

// Maximum size of a line, with its line feed.
inline constexpr std::size_t kGeneratedLineBytesMax = 2 + kIntegerColumns * 20 + kCategoricalColumns * 9;

// Writes the row's line, with its line feed, at `out`; returns its end. `out` has kGeneratedLineBytesMax bytes.
char* WriteLine(const Row& row, char* out);

}  // namespace tarn::generate
