#pragma once
// Options of the command line.
#include <aloni/core/nearest_name.hpp>

#include <CLI/App.hpp>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::tools {

/// A validator for integer options. The parser turns a number beyond 64 bits into the largest number; this refuses it.
/// Returns the error text, empty if there is no error.
inline std::string fits_64_bits(const std::string& text) {
  errno = 0;
  (void)std::strtoll(text.c_str(), nullptr, 0);
  return errno == ERANGE ? text + ": expected an integer of at most 63 bits and a sign" : "";
}

/// Adds an option whose help shows `type` and the present value. Of an option given twice the last one counts, so that
/// a script can append its arguments to its defaults. @pre `value` outlives `command`
template <class Value>
CLI::Option* add_option(CLI::App& command, const char* name, Value& value, const std::string& text, const char* type) {
  CLI::Option* option = command.add_option(name, value, text);
  option->type_name(type)->capture_default_str()->take_last();
  if constexpr (std::is_integral_v<Value>) option->check(fits_64_bits);
  return option;
}

/// The names of a table from text to values, or of a list of texts.
template <class Container>
std::vector<std::string> names_in(const Container& container) {
  std::vector<std::string> names;
  for (const auto& element : container) {
    if constexpr (std::is_same_v<std::decay_t<decltype(element)>, std::string>) {
      names.push_back(element);
    } else {
      names.push_back(element.first);
    }
  }
  return names;
}

/// "sgd, adam".
template <class Container>
std::string listed(const Container& container) {
  std::string text;
  for (const std::string& name : names_in(container)) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The expectation of an error for another name: "one of: sgd, adam; did you mean adam?".
template <class Container>
std::string one_of_listed(const std::string& name, const Container& container) {
  return one_of(name, names_in(container));
}

}  // namespace aloni::tools
