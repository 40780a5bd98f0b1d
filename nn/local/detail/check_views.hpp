#pragma once
// Checks of arguments for all local kernels. Each throws InvalidArgument with operation, argument, extents and
// expectation.
#include <aloni/core/error.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <array>
#include <string>

namespace aloni::nn::local::detail {

template <class View>
std::string extents_text(const View& v) {
  std::string text;
  for (int i = 0; i < static_cast<int>(View::rank()); ++i) text += (i > 0 ? "x" : "") + std::to_string(v.extent(i));
  return text;
}

template <class View>
void check_extents(const char* operation, const char* argument, const View& v, const std::array<Index, 5>& expected) {
  std::string text;
  bool fine = true;
  for (int i = 0; i < 5; ++i) fine = fine && static_cast<Index>(v.extent(i)) == expected[i];
  if (fine) return;
  for (int i = 0; i < 5; ++i) text += (i > 0 ? "x" : "") + std::to_string(expected[i]);
  throw InvalidArgument(operation, argument, extents_text(v), "extents " + text);
}

template <class View, class Other>
void check_same_extents(const char* operation, const char* argument, const View& v, const Other& other) {
  check_extents(
      operation, argument, v,
      {static_cast<Index>(other.extent(0)), static_cast<Index>(other.extent(1)), static_cast<Index>(other.extent(2)),
       static_cast<Index>(other.extent(3)), static_cast<Index>(other.extent(4))});
}

/// For pooling and resampling: the problem is valid, and x (or dx) and y (or dy) have the extents of its boxes.
template <class Problem, class X, class Y>
void check_boxes(const char* operation, const Problem& p, const char* x_name, const X& x, const char* y_name,
                 const Y& y) {
  validate(p);
  check_extents(operation, x_name, x, {p.samples, p.input[0], p.input[1], p.input[2], p.channels});
  check_extents(operation, y_name, y, {p.samples, p.output[0], p.output[1], p.output[2], p.channels});
}

template <class Array>
void check_extent(const char* operation, const char* argument, const Array& v, Index expected) {
  if (static_cast<Index>(v.extent(0)) != expected) {
    throw InvalidArgument(operation, argument, std::to_string(v.extent(0)), "extent " + std::to_string(expected));
  }
}

template <class Array>
void check_extent_or_none(const char* operation, const char* argument, const Array& v, Index expected) {
  if (v.extent(0) != 0) check_extent(operation, argument, v, expected);
}

inline void check(bool fine, const char* operation, const char* argument, const std::string& value,
                  const char* expectation) {
  if (!fine) throw InvalidArgument(operation, argument, value, expectation);
}

}  // namespace aloni::nn::local::detail
