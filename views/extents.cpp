#include <aloni/views/extents.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>

namespace aloni::views {

namespace {

constexpr const char* expectation =
    "extents of at least 0, and at most 2^58 elements, 2 EiB at 8 bytes each; extents of 0 count as 1";

}  // namespace

namespace detail {

void refuse_size(const std::array<Index, num_dims>& extents) {
  throw InvalidArgument("aloni::views", "extents", to_string(Extents{extents}), expectation);
}

}  // namespace detail

void check_extents(const std::string& operation, const Extents& e) {
  Index n = 1;
  for (Dim d : all_dims) {
    if (e[d] < 0)
      throw InvalidArgument(operation, std::string("extents, ") + name(d), std::to_string(e[d]), "at least 0");
    n = saturating_product(n, std::max<Index>(e[d], 1));
  }
  if (n > max_elements) throw InvalidArgument(operation, "extents", to_string(e), expectation);
}

const char* name(Dim d) {
  constexpr const char* names[num_dims] = {"sample", "depth", "height", "width", "channel"};
  return names[position(d)];
}

char letter(Dim d) { return "ndhwc"[position(d)]; }

std::string to_string(const Extents& e) {
  std::string text;
  for (Dim d : all_dims) text += (text.empty() ? "" : "x") + std::to_string(e[d]);
  return text;
}

}  // namespace aloni::views
