#include <aloni/views/box.hpp>

namespace aloni::views {

std::string to_string(const Box& b) {
  std::string text;
  for (Dim d : all_dims) {
    if (!text.empty()) text += "x";
    text += "[" + std::to_string(b.lower(d)) + "," + std::to_string(b.upper(d)) + ")";
  }
  return text;
}

}  // namespace aloni::views
