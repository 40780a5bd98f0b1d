#include <aloni/nn/kfac_options.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/views/extents.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

/// Replaces the upper triangle of a row-major matrix by U, where A = Uᵀ U. Rows of the rest are updated one after
/// another, so inner loops run along rows.
void factorise_upper(std::vector<double>& a, std::size_t n) {
  for (std::size_t k = 0; k < n; ++k) {
    double* const pivot_row = a.data() + k * n;
    const double pivot = pivot_row[k];
    if (!(pivot > 0) || !std::isfinite(pivot))
      throw FactorisationError("aloni::nn::serial_factor_solver", "column " + std::to_string(k), std::to_string(pivot),
                               "a positive pivot: a symmetric positive definite matrix");
    const double root = std::sqrt(pivot);
    for (std::size_t j = k; j < n; ++j) pivot_row[j] /= root;
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = pivot_row[i];
      double* const row = a.data() + i * n;
      for (std::size_t j = i; j < n; ++j) row[j] -= factor * pivot_row[j];
    }
  }
}

/// The solution of Uᵀ U X = 1. The inverse of Uᵀ is lower triangular, so row i of it has i + 1 elements.
std::vector<double> solve_identity(const std::vector<double>& u, std::size_t n) {
  std::vector<double> x(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    double* const row = x.data() + i * n;
    row[i] = 1;
    for (std::size_t k = 0; k < i; ++k) {
      const double factor = u[k * n + i];
      const double* const other = x.data() + k * n;
      for (std::size_t j = 0; j <= k; ++j) row[j] -= factor * other[j];
    }
    for (std::size_t j = 0; j <= i; ++j) row[j] /= u[i * n + i];
  }
  // The inverse is symmetric: row i is needed up to column i only.
  for (std::size_t i = n; i-- > 0;) {
    double* const row = x.data() + i * n;
    for (std::size_t k = i + 1; k < n; ++k) {
      const double factor = u[i * n + k];
      const double* const other = x.data() + k * n;
      for (std::size_t j = 0; j <= i; ++j) row[j] -= factor * other[j];
    }
    for (std::size_t j = 0; j <= i; ++j) row[j] /= u[i * n + i];
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) x[j * n + i] = x[i * n + j];
  return x;
}

double work_of(const KfacLayer& layer) {
  const auto rows = static_cast<double>(layer.rows), columns = static_cast<double>(layer.columns);
  return rows * rows * rows + columns * columns * columns;
}

void assign_owners(std::vector<KfacLayer>& layers, int ranks) {
  std::vector<std::size_t> order(layers.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return work_of(layers[a]) > work_of(layers[b]); });
  std::vector<double> load(static_cast<std::size_t>(ranks), 0.0);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    layers[i].owner = static_cast<int>(least - load.begin());
    *least += work_of(layers[i]);
  }
}

void check_whole_weights(const LayerDescription& layer, const LayerSplit& split) {
  if (split.grid[views::Dim::channel] == 1 && split.filters == 1) return;
  throw Unsupported("aloni::nn::Kfac", layer.name, "split " + to_string(split),
                    "splits of samples and space only, as K-FAC needs all weights of a filter on one rank; or SGD "
                    "without K-FAC (--optimiser sgd)");
}

}  // namespace

FactorSolver serial_factor_solver() {
  return [](std::vector<double> matrix, Index order) {
    const auto n = static_cast<std::size_t>(order);
    if (matrix.size() != n * n)
      throw InvalidArgument("aloni::nn::serial_factor_solver", "matrix", std::to_string(matrix.size()) + " elements",
                            "order × order, " + std::to_string(n * n));
    factorise_upper(matrix, n);
    std::promise<std::vector<double>> inverse;
    inverse.set_value(solve_identity(matrix, n));
    return inverse.get_future();
  };
}

void check(const KfacOptions& o, const std::string& operation) {
  const auto require = [&](bool good, const char* argument, const auto& value, const std::string& expectation) {
    if (!good) throw InvalidArgument(operation, argument, std::to_string(value), expectation);
  };
  require(o.every >= 1, "K-FAC every", o.every, "at least 1 update");
  require(o.factors_every >= 1, "K-FAC factors_every", o.factors_every, "at least 1 update");
  require(o.delay >= 0 && o.delay < o.every, "K-FAC delay", o.delay,
          "at least 0 and below `every`, " + std::to_string(o.every));
  require(std::isfinite(o.damping) && o.damping > 0, "K-FAC damping", o.damping, "a finite number above 0");
  require(o.decay >= 0 && o.decay < 1, "K-FAC decay", o.decay, "a number in [0, 1)");
  require(std::isfinite(o.kl_clip) && o.kl_clip >= 0, "K-FAC kl_clip", o.kl_clip,
          "a finite number of at least 0 (0: not limited)");
  if (!o.solver) throw InvalidArgument(operation, "K-FAC solver", "empty", "a callable that inverts a matrix");
}

KfacPlan plan_kfac(const NetworkDescription& network, const std::vector<LayerSplit>& splits, int ranks) {
  if (splits.size() != network.layers.size())
    throw InvalidArgument("aloni::nn::Kfac", "splits", std::to_string(splits.size()),
                          std::to_string(network.layers.size()) + ", one per layer");
  if (ranks < 1) throw InvalidArgument("aloni::nn::Kfac", "ranks", std::to_string(ranks), "at least 1");
  if (network.loss == Loss::dice)
    throw Unsupported("aloni::nn::Kfac", "loss", name(network.loss),
                      "a loss that is a mean over samples, as the factors are; or SGD without K-FAC (--optimiser sgd)");
  const std::vector<views::Extents> outputs = infer_extents(network, 1);
  KfacPlan plan;
  for (const ParameterDescription& tensor : parameters_of(network)) {
    const auto l = static_cast<std::size_t>(tensor.layer);
    if (!plan.layers.empty() && plan.layers.back().layer == tensor.layer) {
      plan.layers.back().bias = true;
      ++plan.layers.back().columns;
      continue;
    }
    if (!plan.plain.empty() && plan.plain.back() == tensor.layer) continue;
    const LayerDescription& layer = network.layers[l];
    const auto* const convolution = std::get_if<Convolution>(&layer.operation);
    if (!std::holds_alternative<Dense>(layer.operation) && !(convolution && convolution->groups == 1)) {
      plan.plain.push_back(tensor.layer);
      continue;
    }
    check_whole_weights(layer, splits[l]);
    const auto& y = outputs[l].values;
    const Index rows = tensor.extents.values[0];
    plan.layers.push_back({.layer = tensor.layer,
                           .rows = rows,
                           .columns = tensor.extents.size() / rows,
                           .positions = y[1] * y[2] * y[3]});
  }
  if (plan.layers.empty())
    throw InvalidArgument("aloni::nn::Kfac", "network", "no layer with factors",
                          "a convolution without groups, or a dense layer");
  assign_owners(plan.layers, ranks);
  return plan;
}

std::string to_string(const KfacPlan& plan, const NetworkDescription& network) {
  std::string text;
  const auto add = [&](int layer) {
    text += (text.empty() || text.ends_with("; ") ? "" : ", ") + network.layers[static_cast<std::size_t>(layer)].name;
  };
  for (const KfacLayer& layer : plan.layers) add(layer.layer);
  text += " by K-FAC";
  if (plan.plain.empty()) return text;
  text += "; ";
  for (const int layer : plan.plain) add(layer);
  return text + " by SGD";
}

}  // namespace aloni::nn
