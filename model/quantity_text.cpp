#include <aloni/model/quantity_text.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace aloni::model {

namespace {

/// As printf's %.*f.
std::string fixed(double value, int decimals) {
  std::array<char, 384> text{};  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

/// As printf's %.*g.
std::string shortened(double value, int digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

}  // namespace

std::string bytes_text(Index bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t u = 0;
  for (; value >= 10240 && u + 1 < units.size(); ++u) value /= 1024;
  return u == 0 ? std::to_string(bytes) + " B" : fixed(value, 1) + " " + units[u];
}

std::string whole_bytes_text(Index bytes) {
  constexpr Index mebibyte = Index{1} << 20, kibibyte = Index{1} << 10;
  if (bytes >= mebibyte && bytes % mebibyte == 0) return std::to_string(bytes / mebibyte) + " MiB";
  return std::to_string(bytes / kibibyte) + " KiB";
}

std::string seconds_text(double seconds) {
  constexpr std::array units{"s", "ms", "us", "ns"};
  if (seconds == 0) return "0 s";
  std::size_t u = 0;
  for (; seconds < 0.9995 && u + 1 < units.size(); ++u) seconds *= 1000;
  return fixed(seconds, seconds < 9.995 ? 2 : seconds < 99.95 ? 1 : 0) + " " + units[u];
}

std::string duration_text(double seconds) {
  const double size = std::abs(seconds);
  if (size < 1e-3) return shortened(seconds * 1e6, 3) + " us";
  return size < 1 ? shortened(seconds * 1e3, 3) + " ms" : shortened(seconds, 3) + " s";
}

std::string microseconds_text(double seconds) {
  return seconds < 0 ? "-" : fixed(seconds * 1e6, seconds < 1e-4 ? 2 : 0);
}

std::string number_text(double number) {
  constexpr std::array units{"", " k", " M", " G", " T", " P"};
  std::size_t u = 0;
  for (; number >= 10000 && u + 1 < units.size(); ++u) number /= 1000;
  return fixed(number, u == 0 ? 0 : 1) + units[u];
}

std::string three_digits_text(double number) { return number < 999.5 ? shortened(number, 3) : fixed(number, 0); }

std::string six_digits_text(double number) { return shortened(number, 6); }

std::string percent_text(double share) { return share < 0 ? "-" : fixed(100 * share, 1) + " %"; }

std::string rate_text(double per_second, const std::string& unit) {
  return per_second <= 0 ? "not measured" : shortened(per_second * 1e-9, 3) + " G" + unit + "/s";
}

std::string count_text(Index number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string ranks_text(int ranks, int ranks_per_node) {
  const Index nodes = ranks_per_node > 0 ? ceil_div(Index{ranks}, Index{ranks_per_node}) : 1;
  return count_text(ranks, "rank") + " on " + count_text(nodes, "node");
}

}  // namespace aloni::model
