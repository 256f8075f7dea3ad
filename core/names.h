// Names of enumerators: one constexpr list per enumeration serves printing and parsing.
//
//   constexpr Named<ApplyMode> kApplyModes[] = {{ApplyMode::kImmediate, "immediate"}, ...};
//   NameIn(kApplyModes, v);  ParseIn(kApplyModes, "apply mode", text, out);
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"

namespace tarn {

template <typename E>
struct Named {
  E value;
  std::string_view name;
};

// `text` in single quotes, truncated to 64 bytes, with control characters replaced by '?'.
inline std::string Quoted(std::string_view text) {
  constexpr std::size_t kShownMax = 64;
  std::string out = "'";
  for (char c : text.substr(0, kShownMax)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > kShownMax) out += "...";
  return out + "'";
}

// The name of a value; "unknown" if it is not in the list (such as an invalid byte from a peer).
template <typename E, std::size_t N>
constexpr std::string_view NameIn(const Named<E> (&list)[N], E value) {
  for (const auto& entry : list)
    if (entry.value == value) return entry.name;
  return "unknown";
}

// `unknown apply mode 'agregated': expected one of immediate, aggregated; the nearest is 'aggregated'`, without the
// last part if no name is near.
inline std::unexpected<Error> UnknownName(std::string_view what, std::string_view text,
                                          std::span<const std::string_view> names) {
  std::string all;
  for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  const std::string_view nearest = NearestWord(text, names);
  return Fail(ErrorCode::kInvalidArgument,
              "unknown " + std::string(what) + " " + Quoted(text) + ": expected one of " + all +
                  (IsNear(text, nearest) ? "; the nearest is " + Quoted(nearest) : std::string()));
}

// Sets `out` to the value with the name `text`. If there is none, returns UnknownName's error; `out` is then
// unchanged.
template <typename E, std::size_t N>
Status ParseIn(const Named<E> (&list)[N], std::string_view what, std::string_view text, E& out) {
  std::vector<std::string_view> names;
  for (const auto& entry : list) {
    if (entry.name == text) {
      out = entry.value;
      return {};
    }
    names.push_back(entry.name);
  }
  return UnknownName(what, text, names);
}

}  // namespace tarn
