#pragma once
// Filters in the orders that implementations of the local convolution like best, for several kernels that are given the same filters: those of
// an interior and its borders, say, of which each would keep a copy of its own.
//
//   const auto orders = make_filter_orders();
//   auto interior = make_local_convolution<float>(backend, p, exec, {.forward = true}, orders);
//   auto border = make_local_convolution<float>(backend, q, exec, {.forward = true}, orders);
//   interior->set_filter_version(1), border->set_filter_version(1);  // brought into the order by whichever comes first
//
// Contract
// * Kernels hold what they share; whoever made them holds it too, to count its bytes, which no kernel does.
// * Calls of all kernels that share run on one execution space instance, one after the other.
// * The versions of set_filter_version() are the same in all of them: calls of one version that are given filters at one place are given the same
//   values. Calls with filters at different places are right, but bring them into the order alternately: for each place make a store of its own.
#include <cstddef>
#include <memory>

namespace aloni::nn::local {

class FilterOrders {
 public:
  virtual ~FilterOrders() = default;
  /// Of the orders that the kernels made so far have asked for: each counts once.
  virtual std::size_t bytes() const { return 0; }
};

std::shared_ptr<FilterOrders> make_filter_orders();

}  // namespace aloni::nn::local
