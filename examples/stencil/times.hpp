#pragma once
// Times of work that all ranks repeat. The slowest rank counts.
#include <aloni/core/comm/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace stencil {

class Times {
 public:
  /// Collective: runs work(), from a common barrier to the end of the slowest rank.
  template <class F>
  void measure(const aloni::comm::Communicator& comm, F&& work) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    seconds_.push_back(comm.all_reduce(time.count(), aloni::comm::Reduction::max));
  }
  double median() const { return quantile(0.5); }
  double best() const { return quantile(0); }
  double quantile(double part) const {
    std::vector<double> sorted = seconds_;
    const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(sorted.size() - 1) + 0.5);
    std::nth_element(sorted.begin(), at, sorted.end());
    return *at;
  }
  /// Turn by turn, the time of this work over the time of `other`. A long disturbance of the machine cancels out.
  Times over(const Times& other) const {
    Times ratios;
    for (std::size_t i = 0; i < seconds_.size(); ++i) ratios.seconds_.push_back(seconds_[i] / other.seconds_[i]);
    return ratios;
  }
  int turns() const { return static_cast<int>(seconds_.size()); }

 private:
  std::vector<double> seconds_;
};

}  // namespace stencil
