#include "bench/data_plane/measure.h"

#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/json.h"

namespace tarn::bench {
namespace {

// hardware_concurrency may count all cores of the machine.
int CoresAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void PrintLine(const Json& json) {
  fmt::print("{}\n", JsonText(json));
  std::fflush(stdout);
}

}  // namespace

void Die(std::string_view what, int number) {
  const std::string why = number == 0 ? "" : fmt::format(": {}", std::strerror(number));
  fmt::print(stderr, "{}: {}{}\n", program_invocation_short_name, what, why);
  std::exit(1);
}

void Require(bool good, std::string_view what) {
  if (!good) Die(what, errno);
}

void Print(const Figure& figure) {
  Json settings = Json::object();
  for (const auto& [key, value] : figure.settings) std::visit([&](const auto& v) { settings[key] = v; }, value);
  Json json = {
      {"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}, {"settings", std::move(settings)}};
  json["cores"] = CoresAllowed();
  for (const auto& [key, value] : figure.more) json[key] = value;
  PrintLine(json);
}

void PrintSkipped(const std::string& name, const std::string& why) { PrintLine({{"name", name}, {"skipped", why}}); }

double Quantile(std::vector<double>* values, double share) {
  if (values->empty()) return 0;
  const auto at = values->begin() + std::ptrdiff_t(share * double(values->size() - 1));
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

void PrintLatencies(Figure figure, std::vector<double> microseconds) {
  figure.value = Quantile(&microseconds, 0.5);
  figure.unit = "us";
  figure.more.emplace_back("p99", Quantile(&microseconds, 0.99));
  figure.more.emplace_back("operations", double(microseconds.size()));
  Print(figure);
}

}  // namespace tarn::bench
