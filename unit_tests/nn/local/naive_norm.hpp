#pragma once
// Normalisation by its definition, in double: elements with equal keys share a mean and a variance. The gradient of the
// input is a sum over all pairs of elements of a set. Each term has the derivative of one element with respect to the
// other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "local_tensor.hpp"

namespace aloni::test {

struct NaiveNorm {
  LocalTensor<double> y, dx;
  std::vector<double> dgamma, dbeta;
};

/// key(n, d, h, w, c): any ordered type.
template <class T, class Key>
NaiveNorm naive_norm(const LocalTensor<T>& x, const LocalTensor<T>& dy, const LocalArray<T>& gamma,
                     const LocalArray<T>& beta, double epsilon, const Key& key) {
  using Element = std::array<Index, 5>;
  std::map<decltype(key(0, 0, 0, 0, 0)), std::vector<Element>> sets;
  x.for_each([&](auto... i) { sets[key(i...)].push_back({i...}); });
  const auto at = [](const auto& tensor, const Element& i) {
    return static_cast<double>(tensor(i[0], i[1], i[2], i[3], i[4]));
  };
  const auto channels = static_cast<std::size_t>(gamma.size());
  NaiveNorm result{LocalTensor<double>(x.extents()), LocalTensor<double>(x.extents()), std::vector<double>(channels),
                   std::vector<double>(channels)};
  for (const auto& [k, set] : sets) {
    const double count = static_cast<double>(set.size());
    double mean = 0, variance = 0;
    for (const Element& i : set) mean += at(x, i) / count;
    for (const Element& i : set) variance += std::pow(at(x, i) - mean, 2) / count;
    const double inv_std = 1 / std::sqrt(variance + epsilon);
    const auto normal = [&](const Element& i) { return (at(x, i) - mean) * inv_std; };
    for (const Element& i : set) {
      const auto c = static_cast<std::size_t>(i[4]);
      result.y(i[0], i[1], i[2], i[3], i[4]) = normal(i) * gamma(i[4]) + beta(i[4]);
      result.dgamma[c] += at(dy, i) * normal(i);
      result.dbeta[c] += at(dy, i);
      double slope = 0;
      for (const Element& j : set) {
        const double derivative = inv_std * ((i == j ? 1.0 : 0.0) - (1 + normal(i) * normal(j)) / count);
        slope += gamma(j[4]) * at(dy, j) * derivative;
      }
      result.dx(i[0], i[1], i[2], i[3], i[4]) = slope;
    }
  }
  return result;
}

template <class T>
constexpr double norm_tolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;

/// Expects every element near the result of the definition.
template <class T>
void expect_near(const LocalTensor<T>& values, const LocalTensor<double>& expected, const char* what) {
  double worst = 0;
  values.for_each([&](auto... i) {
    const double error = std::abs(static_cast<double>(values(i...)) - expected(i...));
    worst = std::max(worst, std::isnan(error) ? INFINITY : error);
  });
  EXPECT_LE(worst, norm_tolerance<T>) << what;
}

template <class T>
void expect_near(const LocalArray<T>& values, const std::vector<double>& expected, const char* what) {
  for (Index c = 0; c < values.size(); ++c) {
    EXPECT_NEAR(static_cast<double>(values(c)), expected[static_cast<std::size_t>(c)], 10 * norm_tolerance<T>)
        << what << " of channel " << c;
  }
}

}  // namespace aloni::test
