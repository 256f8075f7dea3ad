#include "core/byte_size.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "core/names.h"

namespace tarn {

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr Unit kUnits[] = {{"TiB", std::uint64_t{1} << 40},
                           {"GiB", std::uint64_t{1} << 30},
                           {"MiB", std::uint64_t{1} << 20},
                           {"KiB", std::uint64_t{1} << 10},
                           {"", 1}};

}  // namespace

Expected<std::uint64_t> ParseByteSize(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (rest != unit.name || error != std::errc{}) continue;
    if (number <= std::uint64_t{std::numeric_limits<std::int64_t>::max()} / unit.bytes) return number * unit.bytes;
  }
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a size in bytes: expected a whole number, alone or "
                                                       "with KiB, MiB, GiB or TiB, such as '8GiB', below 2^63",
                                                       Quoted(text)));
}

std::string ToByteSize(std::uint64_t bytes) {
  for (const Unit& unit : kUnits)
    if (bytes != 0 && bytes % unit.bytes == 0) return fmt::format("{}{}", bytes / unit.bytes, unit.name);
  return "0";
}

}  // namespace tarn
