#include "worker/data/criteo_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/limits.h"
#include "core/names.h"
#include "worker/data/keys.h"

namespace tarn::worker {
namespace {

constexpr std::int64_t kSmallIntegers = 4096;

const char* FieldEnd(const char* p, const char* end) {
  const void* tab = std::memchr(p, '\t', static_cast<std::size_t>(end - p));
  return tab ? static_cast<const char*>(tab) : end;
}

// Reads an integer at *p and advances *p; false if there is none or it does not fit into 64 bits.
bool ReadInteger(const char** p, const char* end, std::int64_t* v) {
  const char* q = *p;
  const bool negative = q < end && *q == '-';
  if (negative) ++q;
  const char* first = q;
  std::uint64_t magnitude = 0;
  for (; q < end && static_cast<unsigned char>(*q - '0') < 10; ++q) magnitude = magnitude * 10 + (*q - '0');
  const auto digits = q - first;
  if (digits == 0) return false;
  if (digits <= 18) {
    *v = negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
  } else if (std::from_chars(*p, end, *v).ec != std::errc{}) {
    return false;
  }
  *p = q;
  return true;
}

std::string_view NextField(std::string_view* line) {
  const std::size_t tab = line->find('\t');
  const std::string_view field = line->substr(0, tab);
  line->remove_prefix(tab == std::string_view::npos ? line->size() : tab + 1);
  return field;
}

}  // namespace

CriteoParser::CriteoParser(const DataSection& section)
    : integer_columns_(section.integer_columns),
      categorical_columns_(section.categorical_columns),
      fields_(section.categorical_columns),
      dense_integers_(section.dense_integers) {
  rules_.assign(integer_columns_, section.bins.empty() ? BinRule{} : section.bins.front());
  if (section.bins.size() > 1) rules_ = section.bins;
  for (const BinRule& rule : rules_) fields_ += rule.kind != BinRule::Kind::kNone;
  if (!dense_integers_) return;
  for (std::int64_t v = 0; v < kSmallIntegers; ++v)
    log_of_small_.push_back(static_cast<float>(std::log1p(static_cast<double>(v))));
}

Status CriteoParser::Validate(const DataSection& section) {
  const std::uint64_t columns = std::uint64_t{section.integer_columns} + section.categorical_columns;
  if (columns == 0 || columns > limits::kColumnsMax)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data.integer_columns + data.categorical_columns is {}: expected 1 to {}", columns,
                            limits::kColumnsMax));
  if (section.bins.size() > 1 && section.bins.size() != section.integer_columns)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data.bins has {} rules: expected none, one for all, or one for each of the {} integer "
                            "columns",
                            section.bins.size(), section.integer_columns));
  for (const BinRule& rule : section.bins) TARN_RETURN_IF_ERROR(worker::Validate(rule));
  return {};
}

std::string CriteoParser::Describe(const DataSection& section) {
  return fmt::format("Criteo format, plain or gzip (tab-separated: label, {} integers, {} categorical columns)",
                     section.integer_columns, section.categorical_columns);
}

void CriteoParser::Reserve(std::size_t rows, Batch* batch) const {
  batch->labels.reserve(batch->labels.size() + rows);
  batch->keys.reserve(batch->keys.size() + rows * fields_);
  batch->offsets.reserve(batch->offsets.size() + rows);
  batch->dense.reserve(batch->dense.size() + rows * dense_columns());
}

bool CriteoParser::Parse(std::string_view line, Batch* batch) const {
  const char* p = line.data();
  const char* end = p + line.size();
  if (line.size() < 2 || (*p != '0' && *p != '1') || p[1] != '\t') return false;
  const std::size_t keys_before = batch->keys.size(), dense_before = batch->dense.size();
  batch->keys.resize(keys_before + fields_);
  batch->dense.resize(dense_before + dense_columns());
  if (!ParseFields(p + 1, end, batch->keys.data() + keys_before, batch->dense.data() + dense_before)) {
    batch->keys.resize(keys_before);
    batch->dense.resize(dense_before);
    return false;
  }
  batch->labels.push_back(*p == '1' ? 1.0f : 0.0f);
  batch->offsets.push_back(static_cast<std::uint32_t>(batch->keys.size()));
  ++batch->rows;
  return true;
}

// `p` points to the tab before the first field, and in the loop to the tab before each field.
bool CriteoParser::ParseFields(const char* p, const char* end, Key* keys, float* dense) const {
  for (std::uint32_t column = 0; column < integer_columns_; ++column)
    if (!ParseInteger(&p, end, column, &keys, &dense)) return false;
  for (std::uint32_t i = 0; i < categorical_columns_; ++i) {
    if (p == end || *p != '\t') return false;
    ++p;
    const Key column = ColumnBits(integer_columns_ + i);
    std::uint32_t number = 0;
    if (end - p >= 8 && (end - p == 8 || p[8] == '\t') && ParseHex8(p, &number)) {
      *keys++ = column | number;
      p += 8;
      continue;
    }
    const char* field_end = FieldEnd(p, end);
    *keys++ = column | CategoryValue({p, static_cast<std::size_t>(field_end - p)});
    p = field_end;
  }
  return p == end;
}

bool CriteoParser::ParseInteger(const char** p, const char* end, std::uint32_t column, Key** keys,
                                float** dense) const {
  if (*p == end || **p != '\t') return false;
  ++*p;
  const bool missing = *p == end || **p == '\t';
  std::int64_t v = 0;
  if (!missing && !ReadInteger(p, end, &v)) return false;
  if (dense_integers_) *(*dense)++ = missing ? 0.0f : DenseValue(v);
  const BinRule& rule = rules_[column];
  if (rule.kind != BinRule::Kind::kNone)
    *(*keys)++ = ColumnBits(column) | (missing ? kMissingValue : BinnedValue(rule, bins_, v));
  return true;
}

float CriteoParser::DenseValue(std::int64_t v) const {
  if (v <= 0) return 0;
  if (v < kSmallIntegers) return log_of_small_[static_cast<std::size_t>(v)];
  return static_cast<float>(std::log(static_cast<double>(v) + 1));
}

std::string CriteoParser::Explain(std::string_view line) const {
  if (line.empty()) return "empty line";
  const auto found = 1 + std::count(line.begin(), line.end(), '\t');
  const std::uint32_t expected = 1 + integer_columns_ + categorical_columns_;
  if (found != expected) {
    const auto commas = found == 1 ? std::count(line.begin(), line.end(), ',') : 0;
    return fmt::format(
        "{} tab-separated field{}: expected {} (label, {} integers, {} categorical){}", found, found == 1 ? "" : "s",
        expected, integer_columns_, categorical_columns_,
        commas == 0 ? "" : fmt::format("; the line has {} commas, but fields are separated by tabs", commas));
  }
  const std::string_view label = NextField(&line);
  if (label != "0" && label != "1") return fmt::format("label {}: expected 0 or 1", Quoted(label));
  for (std::uint32_t column = 0; column < integer_columns_; ++column) {
    const std::string_view field = NextField(&line);
    const char* p = field.data();
    std::int64_t v = 0;
    if (!field.empty() && (!ReadInteger(&p, p + field.size(), &v) || p != field.data() + field.size()))
      return fmt::format("integer column {} is {}: expected a 64-bit integer or nothing", column + 1, Quoted(field));
  }
  return "not a line of the format";
}

}  // namespace tarn::worker
