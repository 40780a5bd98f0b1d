#include <aloni/core/comm/tuning.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <system_error>
#include <type_traits>

namespace aloni::comm {

double Tuning::measured_seconds(AllReduceAlgorithm algorithm, std::size_t bytes) const {
  const Measurement *below = nullptr, *above = nullptr;
  for (const Measurement& m : measurements) {
    if (m.algorithm != algorithm) continue;
    if (m.bytes <= bytes && (!below || m.bytes > below->bytes)) below = &m;
    if (m.bytes >= bytes && (!above || m.bytes < above->bytes)) above = &m;
  }
  if (!below && !above) return -1;
  if (!below || above == below) return above->seconds;
  if (!above) return below->seconds * static_cast<double>(bytes) / static_cast<double>(below->bytes);
  const double x = std::log(static_cast<double>(bytes) / static_cast<double>(below->bytes)) /
                   std::log(static_cast<double>(above->bytes) / static_cast<double>(below->bytes));
  return below->seconds * std::pow(above->seconds / below->seconds, x);
}

std::size_t Tuning::part_bytes(AllReduceAlgorithm algorithm, std::size_t bytes) const {
  const Measurement* best = nullptr;
  for (const Measurement& m : measurements) {
    if (m.algorithm == algorithm && m.bytes <= bytes && (!best || m.bytes > best->bytes)) best = &m;
  }
  return best ? best->part_bytes : 0;
}

std::string to_text(const Tuning& t) {
  std::ostringstream text;
  text.precision(6);
  text << "aloni tuning 2\nranks " << t.ranks << "\nnodes " << t.nodes << "\nlatency " << t.latency
       << "\nseconds_per_byte " << t.seconds_per_byte << "\ncombine_seconds_per_byte " << t.combine_seconds_per_byte
       << '\n';
  for (const Measurement& m : t.measurements)
    text << "all_reduce " << to_string(m.algorithm) << ' ' << m.bytes << ' ' << m.seconds << ' ' << m.part_bytes
         << '\n';
  return text.str();
}

namespace {

constexpr const char* first_line = "aloni tuning 2";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t end = std::min(line.find_first_of(" \t", i), line.size());
    if (end > i) words.push_back(line.substr(i, end - i));
    i = end + 1;
  }
  return words;
}

/// Whether the whole text is one number in the range of T. Integers have no sign; other numbers are finite and ≥ 0.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '-') return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
  return true;
}

/// Reads one line. Throws InvalidArgument through `wrong`.
template <class F>
void parse_line(std::string_view line, Tuning& t, const F& wrong) {
  const std::vector<std::string_view> words = words_of(line);
  const std::string_view name = words.empty() ? std::string_view() : words[0];
  const auto number = [&](auto& value, const char* expectation) {
    if (words.size() != 2 || !parse_number(words[1], value)) wrong(expectation);
  };
  constexpr const char* count = "a name and a whole number from 1 to 2^31 - 1";
  constexpr const char* cost = "a name and a number, not negative and finite";
  if (name == "ranks" || name == "nodes") {
    int& value = name == "ranks" ? t.ranks : t.nodes;
    number(value, count);
    if (value < 1) wrong(count);
  } else if (name == "latency") {
    number(t.latency, cost);
  } else if (name == "seconds_per_byte") {
    number(t.seconds_per_byte, cost);
  } else if (name == "combine_seconds_per_byte") {
    number(t.combine_seconds_per_byte, cost);
  } else if (name == "all_reduce") {
    Measurement m;
    std::string algorithms;
    bool known = false;
    for (const AllReduceAlgorithm a : all_reduce_algorithms) {
      algorithms += (algorithms.empty() ? "" : ", ") + to_string(a);
      if (words.size() < 2 || words[1] != to_string(a)) continue;
      known = true;
      m.algorithm = a;
    }
    if (!known) wrong("all_reduce and one of the algorithms " + algorithms);
    if (words.size() != 5 || !parse_number(words[2], m.bytes) || !parse_number(words[3], m.seconds) ||
        !parse_number(words[4], m.part_bytes)) {
      wrong("all_reduce, algorithm, bytes, seconds and bytes of a part; whole numbers of bytes, none negative");
    }
    if (m.bytes == 0) wrong("a size of at least 1 byte");
    t.measurements.push_back(m);
  } else {
    wrong("ranks, nodes, latency, seconds_per_byte, combine_seconds_per_byte or all_reduce");
  }
}

}  // namespace

Tuning parse_tuning(std::string_view text, const std::string& source) {
  Tuning t;
  int number = 0;
  std::string_view line;
  const auto wrong = [&](const std::string& expectation) {
    constexpr std::size_t longest = 60;
    throw InvalidArgument(
        "aloni::comm::parse_tuning", source + (source.empty() ? "line " : ":") + std::to_string(number),
        "\"" + std::string(line.substr(0, longest)) + (line.size() > longest ? "…\"" : "\""), expectation);
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (number > 1) {
      parse_line(line, t, wrong);
    } else if (line != first_line) {
      wrong("\"aloni tuning 2\", as `aloni calibrate` writes it");
    }
  }
  if (number == 0 || t.ranks < 1 || t.nodes < 1) {
    ++number;
    line = {};
    wrong("a complete file of `aloni calibrate`, with ranks and nodes");
  }
  return t;
}

}  // namespace aloni::comm
