#include "tests/unit/net/fields.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tarn::net::testing {
namespace {

template <typename T>
bool Same(const T& a, const T& b);

bool Same(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
bool Same(const std::string& a, const std::string& b) { return a == b; }
bool Same(const RuleName& a, const RuleName& b) { return a == b; }
bool Same(const NamedOptions& a, const NamedOptions& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && std::bit_cast<std::uint32_t>(x.second) == std::bit_cast<std::uint32_t>(y.second);
  });
}
template <typename K, typename V>
bool Same(const std::map<K, V>& a, const std::map<K, V>& b) {
  return a == b;
}
template <typename T>
bool Same(const std::optional<T>& a, const std::optional<T>& b) {
  return a == b;
}
template <typename List>
bool SameItems(const List& a, const List& b);
template <typename T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  return SameItems(a, b);
}
template <typename T>
bool Same(const TableParts<T>& a, const TableParts<T>& b) {
  return SameItems(a, b);
}
template <typename List>
bool SameItems(const List& a, const List& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!Same(a[i], b[i])) return false;
  return true;
}

template <typename A, typename B, std::size_t... I>
bool SameFields(const A& a, const B& b, std::index_sequence<I...>) {
  return (Same(std::get<I>(a), std::get<I>(b)) && ...);
}

template <typename T>
bool Same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || kIsId<T>) {
    return a == b;
  } else {
    const auto fields = Fields(a);
    return SameFields(fields, Fields(b), std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
  }
}

}  // namespace

bool Equal(const Message& a, const Message& b) {
  if (a.body.index() != b.body.index()) return false;
  const bool same_body =
      std::visit([&](const auto& body) { return Same(body, std::get<std::decay_t<decltype(body)>>(b.body)); }, a.body);
  return same_body && a.job == b.job && Same(a.sender, b.sender) && a.epoch == b.epoch && Same(a.values, b.values);
}

}  // namespace tarn::net::testing
