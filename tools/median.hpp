#pragma once
// The median of measured times.
#include <algorithm>
#include <iterator>
#include <vector>

namespace aloni::tools {

/// 0 for no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace aloni::tools
