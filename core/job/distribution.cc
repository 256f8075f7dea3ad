#include "core/job/distribution.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <system_error>
#include <vector>

#include "core/names.h"

namespace tarn {
namespace {

using Kind = Distribution::Kind;

struct Form {
  Kind kind;
  std::string_view name;
  std::size_t numbers;
};
constexpr Form kForms[] = {{Kind::kConstant, "constant", 1},
                           {Kind::kUniform, "uniform", 2},
                           {Kind::kExponential, "exponential", 1},
                           {Kind::kLognormal, "lognormal", 2},
                           {Kind::kPareto, "pareto", 2}};

std::string_view Trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::optional<double> ParseNumber(std::string_view text) {
  text = Trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= 0 && value <= Distribution::kMax)) return std::nullopt;
  return value;
}

// The numbers between the parentheses; empty if one of them is not a number from 0 to Distribution::kMax.
std::vector<double> ParseNumbers(std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto number = ParseNumber(text.substr(0, comma));
    if (!number) return {};
    numbers.push_back(*number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

bool IsValid(const Distribution& d) {
  if (d.kind == Kind::kUniform) return d.a <= d.b;
  if (d.kind == Kind::kPareto) return d.b > 1;
  return true;
}

std::optional<Distribution> Parse(std::string_view text) {
  if (const auto constant = ParseNumber(text)) return Distribution{Kind::kConstant, *constant};
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(')')) return std::nullopt;
  const std::string_view name = Trim(text.substr(0, open));
  const std::vector<double> numbers = ParseNumbers(text.substr(open + 1, text.size() - open - 2));
  for (const Form& form : kForms) {
    if (form.name != name || form.numbers != numbers.size()) continue;
    const Distribution d{form.kind, numbers[0], numbers.size() > 1 ? numbers[1] : 0};
    if (IsValid(d)) return d;
  }
  return std::nullopt;
}

}  // namespace

std::string ToString(const Distribution& d) {
  if (d.kind == Kind::kConstant) return fmt::format("{}", d.a);
  for (const Form& form : kForms) {
    if (form.kind != d.kind) continue;
    return form.numbers == 1 ? fmt::format("{}({})", form.name, d.a) : fmt::format("{}({}, {})", form.name, d.a, d.b);
  }
  return {};
}

Expected<Distribution> ParseDistribution(std::string_view text) {
  if (const auto parsed = Parse(Trim(text))) return *parsed;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: expected a number from 0 to 1e6 or one of uniform(LOW, HIGH), exponential(MEAN), "
                          "lognormal(MEDIAN, SIGMA) and pareto(LOW, SHAPE) with SHAPE > 1",
                          Quoted(text)));
}

}  // namespace tarn
