#include <aloni/tools/kokkos_flags.hpp>

#include <aloni/core/environment.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

namespace aloni::tools {

namespace {

enum class Value { none, count, index, text };

struct Flag {
  std::string_view name;
  Value value;
};

constexpr std::array flags{
    Flag{"--kokkos-help", Value::none},
    Flag{"--kokkos-tools-help", Value::none},
    Flag{"--kokkos-num-threads", Value::count},
    Flag{"--kokkos-device-id", Value::index},
    Flag{"--kokkos-map-device-id-by", Value::text},
    Flag{"--kokkos-disable-warnings", Value::none},
    Flag{"--kokkos-print-configuration", Value::none},
    Flag{"--kokkos-tune-internals", Value::none},
    Flag{"--kokkos-tools-libs", Value::text},
    Flag{"--kokkos-tools-args", Value::text},
};

bool is_integer_from(int lowest, std::string_view text, int highest = std::numeric_limits<int>::max()) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= lowest && value <= highest;
}

// The expectation, if Kokkos would abort on this value; otherwise empty.
std::string fault(const Flag& flag, bool has_value, std::string_view value) {
  switch (flag.value) {
    case Value::none:
      if (!has_value || value == "0" || value == "1" || value == "true" || value == "false" || value == "yes" ||
          value == "no") {
        return "";
      }
      return "no value, or yes or no";
    case Value::count:
      return is_integer_from(1, value, most_threads()) ? "" : "=N with N from 1 to " + std::to_string(most_threads());
    case Value::index:
      return is_integer_from(0, value) ? "" : "=N with N at least 0";
    case Value::text:
      break;
  }
  if (flag.name == "--kokkos-map-device-id-by") {
    return value == "mpi_rank" || value == "random" ? "" : "=mpi_rank or =random";
  }
  return value.empty() ? "=TEXT" : "";
}

}  // namespace

SplitArguments split_kokkos_flags(const std::vector<std::string>& arguments) {
  SplitArguments split;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string_view name = std::string_view(argument).substr(0, equals);
    const bool has_value = equals != std::string::npos;
    const std::string_view value = has_value ? std::string_view(argument).substr(equals + 1) : std::string_view();
    const Flag* known = nullptr;
    for (const Flag& flag : flags) {
      if (flag.name == name) known = &flag;
    }
    if (known == nullptr) {
      split.others.push_back(argument);
      continue;
    }
    const std::string expectation = fault(*known, has_value, value);
    if (!expectation.empty()) {
      if (split.error.empty()) split.error = argument + ": expected " + expectation;
      continue;
    }
    if (known->name == "--kokkos-help") split.help = true;
    split.kokkos.push_back(argument);
  }
  return split;
}

}  // namespace aloni::tools
