#pragma once
// Three numbers as text for messages.
#include <aloni/core/index.hpp>

#include <array>
#include <string>

namespace aloni::nn::local::detail {

/// "(1,28,28)"
inline std::string triple(const std::array<Index, 3>& v) {
  return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
}

}  // namespace aloni::nn::local::detail
