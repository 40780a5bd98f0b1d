#include <aloni/views/box.hpp>

#include <utility>

namespace aloni::views {

std::vector<Box> difference(const Box& outer, const Box& inner) {
  std::vector<Box> boxes;
  Box rest = outer;
  for (Dim d : all_dims) {
    for (auto [lo, hi] : {std::pair(rest.lower(d), inner.lower(d)), std::pair(inner.upper(d), rest.upper(d))}) {
      Box slab = rest;
      slab.set(d, lo, hi);
      if (!slab.empty()) boxes.push_back(slab);
    }
    rest.set(d, inner.lower(d), inner.upper(d));
  }
  return boxes;
}

std::string to_string(const Box& b) {
  std::string text;
  for (Dim d : all_dims) {
    if (!text.empty()) text += "x";
    text += "[" + std::to_string(b.lower(d)) + "," + std::to_string(b.upper(d)) + ")";
  }
  return text;
}

}  // namespace aloni::views
