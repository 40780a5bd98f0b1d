#include <aloni/model/size_factor.hpp>

#include <algorithm>
#include <cmath>

namespace aloni::model {

double factor_at(const std::vector<SizeFactor>& factors, double bytes) {
  const auto size_of = [](const SizeFactor& f) { return static_cast<double>(f.bytes); };
  const auto above = std::ranges::lower_bound(factors, bytes, {}, size_of);
  if (above == factors.begin()) return factors.front().factor;
  if (above == factors.end()) return factors.back().factor;
  const SizeFactor& below = *(above - 1);
  const double share = std::log(bytes / size_of(below)) / std::log(size_of(*above) / size_of(below));
  return below.factor + share * (above->factor - below.factor);
}

}  // namespace aloni::model
