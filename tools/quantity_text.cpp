#include <aloni/tools/quantity_text.hpp>

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace aloni::tools {

std::string bytes_text(Index bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t u = 0;
  for (; value >= 10240 && u + 1 < units.size(); ++u) value /= 1024;
  return u == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[u]);
}

std::string number_text(double number) {
  constexpr std::array units{"", " k", " M", " G", " T", " P"};
  std::size_t u = 0;
  for (; number >= 10000 && u + 1 < units.size(); ++u) number /= 1000;
  return u == 0 ? fmt::format("{:.0f}", number) : fmt::format("{:.1f}{}", number, units[u]);
}

std::string seconds_text(double seconds) {
  constexpr std::array units{"s", "ms", "us", "ns"};
  if (seconds == 0) return "0 s";
  std::size_t u = 0;
  for (; seconds < 0.9995 && u + 1 < units.size(); ++u) seconds *= 1000;
  const int digits = seconds < 9.995 ? 2 : seconds < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", seconds, digits, units[u]);
}

std::string count_text(Index number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string ranks_text(int ranks, int ranks_per_node) {
  const Index nodes = ranks_per_node > 0 ? ceil_div(Index{ranks}, Index{ranks_per_node}) : 1;
  return count_text(ranks, "rank") + " on " + count_text(nodes, "node");
}

}  // namespace aloni::tools
