#include <aloni/model/variation.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/model/detail/step_walk.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace aloni::model {

namespace {

constexpr std::uint64_t kernel_stream = 0x7374'7261'6767'6c65ULL, link_stream = 0x736c'6f77'6c69'6e6bULL;

void check_variation(const Variation& variation) {
  const auto check = [](const char* argument, auto value, bool valid, const char* expectation) {
    if (!valid) throw InvalidArgument("aloni::model::simulate_variation", argument, std::to_string(value), expectation);
  };
  const double sigma = variation.straggler_sigma, share = variation.slow_link_share;
  check("straggler_sigma", sigma, sigma >= 0 && std::isfinite(sigma), "a number of at least 0");
  check("slow_link_share", share, share >= 0 && share <= 1, "a number from 0 to 1");
  check("slow_link_factor", variation.slow_link_factor,
        variation.slow_link_factor >= 1 && std::isfinite(variation.slow_link_factor), "a number of at least 1");
  check("draws", variation.draws, variation.draws >= 1, "at least 1");
}

/// The normal number that is exceeded with probability `tail`, from 0 to 1/2. Newton's method on the logarithm of the
/// tail, which is concave: from the right, where exp(-x²/2)/2 bounds the tail, it converges without a step too far.
double normal_of_tail(double tail) {
  double x = std::sqrt(std::max(0.0, -2 * std::log(2 * tail)));
  for (int i = 0; i < 50; ++i) {
    const double above = std::erfc(x / std::numbers::sqrt2) / 2;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double change = std::log(above / tail) * above / density;
    x += change;
    if (std::abs(change) < 1e-12) break;
  }
  return x;
}

/// The parts of one draw: of each class the ranks with a usual link and those with a slow one.
class PartsOfDraws {
 public:
  PartsOfDraws(const detail::PricedStep& step, const Variation& variation)
      : variation_(variation), class_of_(step.class_of_rank()) {
    members_.resize(step.classes().size());
    for (const int c : class_of_) ++members_[static_cast<std::size_t>(c)];
    if (step.node_of_rank().empty()) {
      classes_of_node_ = {class_of_};
      return;
    }
    std::map<int, std::vector<int>> classes;
    for (std::size_t r = 0; r < class_of_.size(); ++r) classes[step.node_of_rank()[r]].push_back(class_of_[r]);
    for (auto& [node, of_node] : classes) classes_of_node_.push_back(std::move(of_node));
  }

  std::vector<detail::WalkedPart> of(std::size_t draw) const {
    const std::vector<int> slow = slow_members(draw);
    std::vector<detail::WalkedPart> parts;
    for (std::size_t c = 0; c < members_.size(); ++c) {
      add(parts, draw, 2 * c, members_[c] - slow[c], 1);
      add(parts, draw, 2 * c + 1, slow[c], variation_.slow_link_factor);
    }
    return parts;
  }

 private:
  std::vector<int> slow_members(std::size_t draw) const {
    std::vector<int> slow(members_.size());
    if (variation_.slow_link_share == 0) return slow;
    const std::size_t nodes = classes_of_node_.size();
    for (std::size_t node = 0; node < nodes; ++node) {
      const double uniform = random::host_uniform(variation_.seed, link_stream, draw * nodes + node);
      if (uniform >= variation_.slow_link_share) continue;
      for (const int c : classes_of_node_[node]) ++slow[static_cast<std::size_t>(c)];
    }
    return slow;
  }

  /// `part`: number of the part; two for each class.
  void add(std::vector<detail::WalkedPart>& parts, std::size_t draw, std::size_t part, int ranks,
           double link_factor) const {
    if (ranks == 0) return;
    detail::WalkedPart& added = parts.emplace_back();
    added.rank_class = static_cast<int>(part / 2);
    added.link_factor = link_factor;
    for (std::size_t s = 0; s < detail::walked_steps; ++s) {
      const std::size_t position = (draw * detail::walked_steps + s) * 2 * members_.size() + part;
      const double uniform = random::host_uniform(variation_.seed, kernel_stream, position);
      added.kernel_factors[s] = largest_lognormal(variation_.straggler_sigma, ranks, uniform);
    }
  }

  const Variation& variation_;
  const std::vector<int>& class_of_;                    ///< by rank
  std::vector<std::vector<int>> classes_of_node_ = {};  ///< of its ranks
  std::vector<int> members_ = {};                       ///< number, by class
};

/// Linear between the two nearest numbers. @pre `sorted` is ascending and not empty
double quantile_of(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

double largest_lognormal(double sigma, int count, double uniform) {
  if (sigma == 0) return 1;
  // A uniform number of 0 has no logarithm. The others are multiples of 2^-53.
  const double logarithm = std::log(std::max(uniform, 0x1p-54)) / count;
  const double below = std::exp(logarithm), above = -std::expm1(logarithm);
  return std::exp(sigma * (above < below ? normal_of_tail(above) : -normal_of_tail(below)));
}

VariedSteps simulate_variation(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                               const Machine& machine, const KernelTimes& kernels, const Variation& variation,
                               const SimulationOptions& options) {
  check_variation(variation);
  const detail::PricedStep step(network, layers, machine, kernels, options);
  const PartsOfDraws parts(step, variation);
  VariedSteps result;
  result.without = step.walk(whole_classes(step)).seconds;
  if (variation.none()) {
    result.mean = result.median = result.percentile_95 = result.without;
    return result;
  }
  std::vector<double> seconds;
  for (int draw = 0; draw < variation.draws; ++draw)
    seconds.push_back(step.walk(parts.of(static_cast<std::size_t>(draw))).seconds);
  std::ranges::sort(seconds);
  result.mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / variation.draws;
  result.median = quantile_of(seconds, 0.5);
  result.percentile_95 = quantile_of(seconds, 0.95);
  return result;
}

}  // namespace aloni::model
