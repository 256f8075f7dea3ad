#include "worker/data/libsvm_parser.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "core/limits.h"
#include "core/names.h"
#include "worker/data/keys.h"

namespace tarn::worker {
namespace {

// Removes the next run of non-blanks from the front of `line` and returns it; empty at the end.
std::string_view NextToken(std::string_view* line) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::size_t begin = 0;
  while (begin < line->size() && blank((*line)[begin])) ++begin;
  std::size_t end = begin;
  while (end < line->size() && !blank((*line)[end])) ++end;
  const std::string_view token = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return token;
}

template <typename T>
bool ParseWhole(std::string_view text, T* out) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return failed == std::errc{} && end == text.data() + text.size();
}

// The nearest float. from_chars rejects numbers that are nearer to zero than any other float, such as 1e-50.
bool ParseNumber(std::string_view text, float* out) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (end != text.data() + text.size()) return false;
  if (failed != std::errc::result_out_of_range) return failed == std::errc{};
  const double wide = std::strtod(std::string(text).c_str(), nullptr);
  *out = static_cast<float>(wide);
  return std::abs(wide) < 1;
}

}  // namespace

Status LibsvmParser::Validate(const DataSection& section) {
  if (section.classes >= 2 && section.classes <= limits::kClassesMax) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("data.classes is {}: expected 2 to {}", section.classes, limits::kClassesMax));
}

std::string LibsvmParser::Describe(const DataSection&) {
  return "libsvm format, plain or gzip (label, then column:value or column, separated by blanks)";
}

void LibsvmParser::Reserve(std::size_t rows, Batch* batch) const {
  batch->labels.reserve(batch->labels.size() + rows);
  batch->offsets.reserve(batch->offsets.size() + rows);
}

bool LibsvmParser::Parse(std::string_view line, Batch* batch) const {
  const std::size_t keys_before = batch->keys.size();
  const bool weighted_before = !batch->weights.empty();
  if (ParseInto(line, batch).what == nullptr) {
    batch->offsets.push_back(static_cast<std::uint32_t>(batch->keys.size()));
    ++batch->rows;
    return true;
  }
  batch->labels.resize(batch->rows);
  batch->keys.resize(keys_before);
  batch->weights.resize(weighted_before ? keys_before : 0);
  return false;
}

std::string LibsvmParser::Explain(std::string_view line) const {
  Batch scratch;
  const Fault fault = ParseInto(line, &scratch);
  if (fault.what == nullptr) return "not a line of the format";
  return fault.token.empty() ? fault.what : fmt::format("{}: {}", Quoted(fault.token), fault.what);
}

LibsvmParser::Fault LibsvmParser::ParseInto(std::string_view line, Batch* batch) const {
  line = line.substr(0, line.find('#'));
  const std::string_view first = NextToken(&line);
  if (first.empty()) return {"empty line", {}};
  float label = 0;
  if (first.find(',') != std::string_view::npos)
    return {"expected a label, then column:value or column, separated by blanks and not by commas", first};
  if (!ParseLabel(first, &label))
    return {classes_ > 2 ? "expected a label from 0 to data.classes - 1" : "expected a label -1, 0 or 1", first};
  batch->labels.push_back(label);
  for (std::string_view token = NextToken(&line); !token.empty(); token = NextToken(&line))
    if (const Fault fault = ParseFeature(token, batch); fault.what != nullptr) return fault;
  return {};
}

LibsvmParser::Fault LibsvmParser::ParseFeature(std::string_view token, Batch* batch) const {
  const std::size_t colon = token.find(':');
  std::uint64_t index = 0;
  if (!ParseWhole(token.substr(0, colon), &index) || index >= kIndexEnd)
    return {"expected column:value or column, with a column from 0 to 2^47 - 1", token};
  float value = 1;
  if (colon != std::string_view::npos && token.substr(colon + 1) != "1" &&
      (!ParseNumber(token.substr(colon + 1), &value) || !std::isfinite(value)))
    return {"expected a finite number after the colon", token};
  if (value != 1 && batch->weights.empty()) batch->weights.assign(batch->keys.size(), 1.0f);
  const bool weighted = value != 1 || !batch->weights.empty();
  batch->keys.push_back(ColumnBits(0) | index);
  if (weighted) batch->weights.push_back(value);
  return {};
}

bool LibsvmParser::ParseLabel(std::string_view token, float* label) const {
  if (token.size() > 1 && token.front() == '+' && token[1] != '-') token.remove_prefix(1);
  float value = 0;
  if (!ParseNumber(token, &value) || value != std::floor(value)) return false;
  if (classes_ == 2 && value == -1) value = 0;
  if (!(value >= 0 && value < static_cast<float>(classes_))) return false;
  *label = value + 0.0f;  // converts -0 to 0
  return true;
}

}  // namespace tarn::worker
