#include "bench/scale_model/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

namespace tarn::scale {
namespace {

constexpr const char* kNames[kWorks] = {
    "read", "plan",  "compute", "ask",   "take_reply", "push",  "take_ack", "tick",    "take_tick_ack", "settle",
    "park", "serve", "gather",  "apply", "shard_tick", "close", "send",     "receive", "io_send",       "io_receive"};
constexpr double kOutlierRatio = 3;  // to the fitted line
constexpr int kRounds = 6;

// Every number of the file, by name.
std::map<std::string, double*> Fields(Costs* costs) {
  std::map<std::string, double*> fields = {{"busy_slowdown", &costs->busy_slowdown},
                                           {"local_latency_ns", &costs->local_latency_ns}};
  for (std::size_t i = 0; i < kWorks; ++i) {
    const std::string name = kNames[i];
    fields[name + ".message_ns"] = &costs->lines[i].message_ns;
    fields[name + ".row_ns"] = &costs->lines[i].row_ns;
    fields[name + ".dense_ns"] = &costs->lines[i].dense_ns;
    fields[name + ".third_ns"] = &costs->lines[i].third_ns;
    fields[name + ".table_ns"] = &costs->lines[i].table_ns;
  }
  return fields;
}

using Vector = std::array<double, kParts>;

// Least squares over the parts in `used`, by normal equations and elimination; each sample is weighted by its value in
// `expected`. False: the samples do not determine all parts.
bool Solve(std::span<const Sample> samples, const std::array<bool, kParts>& used, const Line& expected, Vector* out) {
  double a[kParts][kParts + 1] = {};
  for (const Sample& s : samples) {
    const double ns = std::max(1.0, expected(s.amount));
    const double weight = 1 / (ns * ns);
    const Vector x = s.amount.parts();
    for (std::size_t i = 0; i < kParts; ++i) {
      for (std::size_t j = 0; j < kParts; ++j) a[i][j] += used[i] && used[j] ? weight * x[i] * x[j] : 0;
      a[i][kParts] += used[i] ? weight * x[i] * s.ns : 0;
    }
  }
  for (std::size_t i = 0; i < kParts; ++i)
    if (!used[i]) a[i][i] = 1;
  for (std::size_t i = 0; i < kParts; ++i) {
    const double before = a[i][i];
    for (std::size_t k = 0; k < i; ++k) {
      const double f = a[i][k] / a[k][k];
      for (std::size_t j = k; j <= kParts; ++j) a[i][j] -= f * a[k][j];
    }
    if (a[i][i] <= 1e-9 * before) return false;
  }
  for (std::size_t i = kParts; i-- > 0;) {
    double sum = a[i][kParts];
    for (std::size_t j = i + 1; j < kParts; ++j) sum -= a[i][j] * (*out)[j];
    (*out)[i] = sum / a[i][i];
  }
  return true;
}

// One fit, with weights from the line `expected`.
Line FitOnce(std::span<const Sample> samples, const Line& expected) {
  std::array<bool, kParts> used;
  for (std::size_t i = 0; i < kParts; ++i)
    used[i] = std::ranges::any_of(samples, [i](const Sample& s) { return s.amount.parts()[i] > 0; });
  // Removes parts that are not determined or negative, the last first, so that messages remain.
  while (true) {
    Vector at = {};
    const bool solved = Solve(samples, used, expected, &at);
    std::size_t drop = kParts;
    for (std::size_t i = 0; i < kParts; ++i)
      if (used[i] && (!solved || at[i] < 0)) drop = i;
    if (drop == kParts) return {at[0], at[1], at[2], at[3], at[4]};
    used[drop] = false;
  }
}

}  // namespace

std::string_view Name(Work work) { return kNames[static_cast<std::size_t>(work)]; }

std::string ToText(const Costs& costs) {
  Costs copy = costs;
  std::string text = "# nanoseconds of a thread, described in bench/scale_model/costs.h\n";
  for (const auto& [name, value] : Fields(&copy)) text += fmt::format("{} {}\n", name, *value);
  return text;
}

Expected<Costs> ReadCosts(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Fail(ErrorCode::kNotFound, path + ": cannot be read; expected a file of `scale_model calibrate`");
  Costs costs;
  auto fields = Fields(&costs);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string name;
    double value = 0;
    const bool good = bool(words >> name >> value) && std::isfinite(value) && value >= 0;
    const auto field = fields.find(name);
    if (!good || field == fields.end())
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}:{}: \"{}\": expected the name of a cost and a number, not negative", path, number, line));
    *field->second = value;
    fields.erase(field);
  }
  if (!fields.empty())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: no line for {}", path, fields.begin()->first));
  return costs;
}

// Weights from measured times would give slow samples less weight, so the line would be below the mean. So the weights
// come from the line itself, which is fitted several times.
Line Fit(std::span<const Sample> samples) {
  double amount = 0, ns = 0;
  for (const Sample& s : samples) {
    for (const double part : s.amount.parts()) amount += part;
    ns += s.ns;
  }
  const double each = amount > 0 ? ns / amount : 0;
  Line line{each, each, each, each, each};
  std::vector<Sample> kept(samples.begin(), samples.end());
  for (int round = 0; round < kRounds; ++round) {
    line = FitOnce(kept, line);
    kept.clear();
    for (const Sample& s : samples)
      if (s.ns <= kOutlierRatio * std::max(1.0, line(s.amount))) kept.push_back(s);
  }
  return line;
}

}  // namespace tarn::scale
