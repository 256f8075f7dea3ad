// Access to all fields of the structs of messages, for code that must cover each field: RandomMessage and Equal need no
// change for a new field of a schema.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/message.h"

namespace tarn::net::testing {

// Stands for any value in an initializer list.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: implicit on purpose, never defined
};

// The number of fields of an aggregate: the maximum number of its initializers.
template <typename T, typename... Args>
consteval std::size_t FieldCount() {
  if constexpr (requires { T{Args{}..., Anything{}}; }) {
    return FieldCount<T, Args..., Anything>();
  } else {
    return sizeof...(Args);
  }
}

// References to the fields of `v`, in order.
template <typename T>
auto Fields(T& v) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, SetRows>) {
    return std::tie(v[0], v[1], v[2]);
  } else if constexpr (std::is_same_v<U, LeaseRequest>) {  // its array would count as three fields
    return std::tie(v.number, v.want, v.done, v.rows);
  } else if constexpr (std::is_same_v<U, OptimizerSpec>) {  // a RuleName converts from several types
    return std::tie(v.kind, v.learning_rate, v.options, v.l2, v.clip_value, v.clip_norm, v.schedule);
  } else {
    constexpr std::size_t n = FieldCount<U>();
    static_assert(n >= 1 && n <= 16, "add a case");
    if constexpr (n == 1) {
      auto& [a] = v;
      return std::tie(a);
    } else if constexpr (n == 2) {
      auto& [a, b] = v;
      return std::tie(a, b);
    } else if constexpr (n == 3) {
      auto& [a, b, c] = v;
      return std::tie(a, b, c);
    } else if constexpr (n == 4) {
      auto& [a, b, c, d] = v;
      return std::tie(a, b, c, d);
    } else if constexpr (n == 5) {
      auto& [a, b, c, d, e] = v;
      return std::tie(a, b, c, d, e);
    } else if constexpr (n == 6) {
      auto& [a, b, c, d, e, f] = v;
      return std::tie(a, b, c, d, e, f);
    } else if constexpr (n == 7) {
      auto& [a, b, c, d, e, f, g] = v;
      return std::tie(a, b, c, d, e, f, g);
    } else if constexpr (n == 8) {
      auto& [a, b, c, d, e, f, g, h] = v;
      return std::tie(a, b, c, d, e, f, g, h);
    } else if constexpr (n == 9) {
      auto& [a, b, c, d, e, f, g, h, i] = v;
      return std::tie(a, b, c, d, e, f, g, h, i);
    } else if constexpr (n == 10) {
      auto& [a, b, c, d, e, f, g, h, i, j] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j);
    } else if constexpr (n == 11) {
      auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j, k);
    } else if constexpr (n == 15) {
      auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p);
    } else if constexpr (n == 13) {
      auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
    } else if constexpr (n == 14) {
      auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o);
    } else if constexpr (n == 12) {
      auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
    } else if constexpr (n == 16) {
      auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = v;
      return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q);
    } else {
      static_assert(n == 0, "add a case");
    }
  }
}

template <typename T>
inline constexpr bool kIsId = false;
template <typename Tag, typename Rep>
inline constexpr bool kIsId<StrongId<Tag, Rep>> = true;

// Whether two values are the same, field by field and byte by byte (NaN equals itself).
bool Equal(const Message& a, const Message& b);

}  // namespace tarn::net::testing
