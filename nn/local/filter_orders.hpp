#pragma once
// A store of reordered filters. An implementation of the local convolution may reorder filters for its vectors. Kernels
// that get the same filters, as those of an interior and its borders, share the reordered copy through this store.
//
//   const auto orders = make_filter_orders();
//   auto interior = make_local_convolution<float>(backend, p, exec, {.forward = true}, orders);
//   auto border = make_local_convolution<float>(backend, q, exec, {.forward = true}, orders);
//   interior->set_filter_version(1), border->set_filter_version(1);  // the first call reorders
//
// Contract
// * Kernels keep the store alive. Its owner counts its bytes: workspace_bytes() of the kernels leaves them out.
// * Calls of all kernels that share a store run on one execution space instance, one after the other.
// * All kernels use the same versions in set_filter_version(): at one address, one version stands for one set of
//   values.
// * Filters at different addresses give right results, but each change of the address reorders again. Make one store
//   for each address.
#include <cstddef>
#include <memory>

namespace aloni::nn::local {

class FilterOrders {
 public:
  virtual ~FilterOrders() = default;
  /// Bytes of all reordered copies that kernels have asked for so far. Each copy counts once.
  virtual std::size_t bytes() const { return 0; }
};

std::shared_ptr<FilterOrders> make_filter_orders();

}  // namespace aloni::nn::local
