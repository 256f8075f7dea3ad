#pragma once
namespace thrust {
template <typename I, typename F>
struct transform_iterator {
  template <typename N>
  auto operator[](N i) const {
    return f(in[i]);
  }
  I in;
  F f;
};
template <typename I, typename F>
transform_iterator<I, F> make_transform_iterator(I in, F f) {
  return {in, f};
}
}  // namespace thrust
