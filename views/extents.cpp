#include <aloni/views/extents.hpp>

namespace aloni::views {

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
