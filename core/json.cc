#include "core/json.h"

#include <charconv>
#include <cmath>

namespace tarn {

std::string JsonText(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

double ShortestNumber(float value) {
  if (!std::isfinite(value)) return double(value);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  double number = 0;
  std::from_chars(digits, end.ptr, number);
  return number;
}

}  // namespace tarn
