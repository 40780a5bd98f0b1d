#pragma once
// A store of reordered filters. An implementation of the local convolution may reorder filters for its vectors. Kernels
// that get the same filters, as those of an interior and its borders, share the reordered copy through this store.
//
//   const auto orders = make_filter_orders();
//   auto interior = make_local_convolution<float>(backend, p, exec, {.forward = true}, orders);
//   auto border = make_local_convolution<float>(backend, q, exec, {.forward = true}, orders);
//   interior->set_filter_version(1), border->set_filter_version(1);  // the first call reorders
//
// Stores with one Scratch may also reorder into one place: Scratch::share_filters().
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
#include <utility>

namespace aloni::nn::local {

/// Scratch memory that kernels share: all those whose stores were made with it. They run on one execution space
/// instance, one after the other, so the memory is as large as the largest of them needs.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Makes room for at least so many bytes. Moves the memory: ask for data() again. @pre no kernel runs
  void reserve(std::size_t bytes);
  std::byte* data() const { return memory_.get(); }
  /// With those of of_callers() and of shared filters.
  std::size_t bytes() const;
  /// Another memory, for kernels that run kernels with this one.
  Scratch& of_callers() {
    if (!of_callers_) of_callers_ = std::make_unique<Scratch>();
    return *of_callers_;
  }

  /// The place of reordered filters that all stores share.
  struct SharedFilters;
  /// From now on new orders of filters lie in one place, as large as the largest of them. A call reorders its filters
  /// unless it finds them there. Training changes all filters in each step. So nothing is reordered more often than
  /// before, as long as the calls for one layer follow each other. A gradient of filters that must be reordered lies
  /// there too, since no kernel reads filters meanwhile. @pre no store has an order
  void share_filters();
  SharedFilters* shared_filters() const { return shared_filters_.get(); }  ///< null: each order has its own memory

  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t round_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
  std::unique_ptr<Scratch> of_callers_;
  std::shared_ptr<SharedFilters> shared_filters_;
};

struct Scratch::SharedFilters {
  Scratch memory = {};
  const void* order = nullptr;  ///< that has written last; null: a gradient, or none
};

/// A copy of the filters in another type, which all kernels of a store read.
class SharedFilterCopy {
 public:
  virtual ~SharedFilterCopy() = default;
  virtual std::size_t bytes() const = 0;
};

class FilterOrders {
 public:
  explicit FilterOrders(std::shared_ptr<Scratch> scratch)
      : scratch_(scratch ? std::move(scratch) : std::make_shared<Scratch>()) {}
  virtual ~FilterOrders() = default;
  /// Bytes of all reordered copies that kernels have asked for so far. Each copy counts once.
  virtual std::size_t bytes() const { return copy ? copy->bytes() : 0; }
  /// The owner counts its bytes: workspace_bytes() of the kernels leaves them out.
  const std::shared_ptr<Scratch>& scratch() const { return scratch_; }

  /// Made by the first kernel that needs it; null: none does.
  std::shared_ptr<SharedFilterCopy> copy = {};

 private:
  std::shared_ptr<Scratch> scratch_;
};

/// `scratch`: shared with the kernels of other stores; null: the store has its own.
std::shared_ptr<FilterOrders> make_filter_orders(const std::shared_ptr<Scratch>& scratch = nullptr);

}  // namespace aloni::nn::local
