#pragma once
// A copy of the filters in another form: rounded, or in another type. It is made once for each version of the values.
// Kernels of one FilterOrders may share it.
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/filter_orders.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace aloni::nn::local::detail {

/// Rounds to Narrow and converts back to float.
template <class Narrow>
struct Rounded {
  KOKKOS_FUNCTION float operator()(float x) const { return static_cast<float>(static_cast<Narrow>(x)); }
};

/// To: the type of the copy. Op: makes an element of it from a float.
template <class To, class Op, class Exec>
class FilterCopy final : public SharedFilterCopy {
 public:
  /// Takes the memory, if there is less: the only function that does.
  void reserve(const Exec& exec, const std::string& label, Index elements) {
    if (static_cast<std::size_t>(elements) <= memory_.size()) return;
    version_ = 0;
    memory_ = Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, label), static_cast<std::size_t>(elements));
  }
  std::size_t bytes() const override { return memory_.size() * sizeof(To); }

  /// The copy of `filters`. `version`: LocalConvolution::set_filter_version(); 0: the values may be others than last
  /// time. Asynchronous on the given instance. @pre room for the filters is reserved
  Tensor<To, Exec> of(const Exec& exec, const Tensor<const float, Exec>& filters, std::uint64_t version) {
    const Tensor<To, Exec> copy = dense_tensor<To, Exec>(memory_.data(), filters.extent(0), filters.extent(1),
                                                         filters.extent(2), filters.extent(3), filters.extent(4));
    if (version == 0 || version != version_ || filters.data() != source_)
      elementwise<Exec, Op, To, float>(exec, "aloni::nn::convolution_copy_filters", {}, copy, filters);
    version_ = version;
    source_ = filters.data();
    return copy;
  }

 private:
  using Memory = Kokkos::View<To*, typename Exec::memory_space>;

  Memory memory_;
  std::uint64_t version_ = 0;
  const float* source_ = nullptr;
};

/// The copy that belongs to `orders`; one of its own without a store, or if the store has one of another kind.
template <class Copy>
std::shared_ptr<Copy> filter_copy_of(const std::shared_ptr<FilterOrders>& orders) {
  if (!orders) return std::make_shared<Copy>();
  if (!orders->copy) orders->copy = std::make_shared<Copy>();
  if (auto copy = std::dynamic_pointer_cast<Copy>(orders->copy)) return copy;
  return std::make_shared<Copy>();
}

}  // namespace aloni::nn::local::detail
