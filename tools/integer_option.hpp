#pragma once
// Integers of the command line.
#include <cerrno>
#include <cstdlib>
#include <string>

namespace aloni::tools {

/// A validator for integer options. The parser turns a number beyond 64 bits into the largest number; this refuses it.
/// Returns the error text, empty if there is no error.
inline std::string fits_64_bits(const std::string& text) {
  errno = 0;
  (void)std::strtoll(text.c_str(), nullptr, 0);
  return errno == ERANGE ? text + ": expected an integer of at most 63 bits and a sign" : "";
}

}  // namespace aloni::tools
