#include <aloni/core/comm/tuning.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>

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

Tuning parse_tuning(std::string_view text, const std::string& source) {
  std::istringstream lines{std::string(text)};
  Tuning t;
  int number = 0;
  std::string line;
  const auto wrong = [&](const std::string& expectation) {
    throw InvalidArgument("aloni::comm::parse_tuning",
                          source + (source.empty() ? "line " : ":") + std::to_string(number), "\"" + line + "\"",
                          expectation);
  };
  while (std::getline(lines, line)) {
    ++number;
    if (number == 1) {
      if (line != "aloni tuning 2") wrong("\"aloni tuning 2\", as `aloni calibrate` writes it");
      continue;
    }
    std::istringstream words(line);
    std::string name, algorithm, rest;
    words >> name;
    double value = 0;
    if (name == "all_reduce") {
      Measurement m;
      words >> algorithm >> m.bytes >> m.seconds >> m.part_bytes;
      if (words) m.algorithm = parse_all_reduce_algorithm(algorithm);
      if (m.bytes == 0) wrong("a size of at least 1 byte");
      value = m.seconds;
      t.measurements.push_back(m);
    } else {
      words >> value;
      if (name == "ranks")
        t.ranks = static_cast<int>(value);
      else if (name == "nodes")
        t.nodes = static_cast<int>(value);
      else if (name == "latency")
        t.latency = value;
      else if (name == "seconds_per_byte")
        t.seconds_per_byte = value;
      else if (name == "combine_seconds_per_byte")
        t.combine_seconds_per_byte = value;
      else
        wrong("ranks, nodes, latency, seconds_per_byte, combine_seconds_per_byte or all_reduce");
    }
    if (!words || words >> rest || !(value >= 0) || !std::isfinite(value))
      wrong("a name and its values, not negative and finite");
  }
  if (number == 0 || t.ranks < 1) {
    ++number;
    line = "";
    wrong("a complete file of `aloni calibrate`");
  }
  return t;
}

}  // namespace aloni::comm
