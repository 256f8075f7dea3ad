#pragma once
namespace thrust {
template <typename T>
struct counting_iterator {
  explicit counting_iterator(T first_) : first(first_) {}
  template <typename N>
  T operator[](N i) const {
    return first + static_cast<T>(i);
  }
  T first;
};
}  // namespace thrust
