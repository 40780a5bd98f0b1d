#pragma once
// Tensors in any layout. Tests read and write their cells by global index, on any device.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/halo/transfer.hpp>

#include <halo/reference.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace aloni::halo::testing_support {

using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

/// A value that identifies a cell: exact in float, different for neighbours.
inline double value_of(const Cell& c, int which = 0) {
  return static_cast<double>(1 + c[4] + 11 * c[3] + 13 * 11 * c[2] + 17 * 143 * c[1] + 7 * 2431 * c[0] +
                             100003 * which);
}

enum class Layout { channels_last, reversed, permuted_with_gaps };

template <class T>
class TestTensor {
 public:
  /// shared: allocates in memory that the ranks of this communicator's node share.
  TestTensor(const Box& box, Layout layout, Random& pick, const comm::Communicator* shared = nullptr)
      : box_(box.empty() ? Box{} : box) {
    std::array<std::size_t, 5> order{0, 1, 2, 3, 4};  // outermost first
    if (layout == Layout::reversed) std::reverse(order.begin(), order.end());
    if (layout == Layout::permuted_with_gaps)
      for (std::size_t i = 5; i-- > 1;)
        std::swap(order[i], order[static_cast<std::size_t>(pick(0, static_cast<int>(i)))]);
    Index stride = 1;
    for (std::size_t i = 5; i-- > 0;) {
      strides_[order[i]] = stride;
      stride *= std::max<Index>(1, box_.hi[order[i]] - box_.lo[order[i]]);
      if (layout == Layout::permuted_with_gaps) stride += pick(0, 3);
    }
    const auto size = static_cast<std::size_t>(stride);
    if (shared) {
      std::tie(storage_, memory_) = comm::allocate_shared<T>(*shared, Exec{}, "aloni::test: tensor", size);
    } else {
      storage_ = decltype(storage_)("aloni::test: tensor", size);
    }
    host_ = Kokkos::create_mirror_view(storage_);
  }

  const Box& box() const { return box_; }
  TensorRef<T, Memory> ref() const {
    const auto e = views::extents_of(box_).values;
    const auto n = [&](std::size_t i) { return static_cast<std::size_t>(e[i]); };
    const auto s = [&](std::size_t i) { return static_cast<std::size_t>(strides_[i]); };
    const Kokkos::LayoutStride layout(n(0), s(0), n(1), s(1), n(2), s(2), n(3), s(3), n(4), s(4));
    return {views::LocalView<T, Memory>(storage_.data(), layout), box_};
  }
  T& at(const Cell& cell) {
    Index offset = 0;
    for (std::size_t i = 0; i < 5; ++i) offset += (cell[i] - box_.lo[i]) * strides_[i];
    return host_(static_cast<std::size_t>(offset));
  }
  template <class F>
  void set(F&& f) {
    for_each_cell(box_, [&](const Cell& c) { at(c) = static_cast<T>(f(c)); });
    upload();
  }
  void upload() { Kokkos::deep_copy(storage_, host_); }
  void download() { Kokkos::deep_copy(host_, storage_); }
  /// All elements of the storage, including gaps between cells.
  auto raw() {
    download();
    return std::vector<T>(host_.data(), host_.data() + host_.size());
  }

 private:
  Box box_;
  std::array<Index, 5> strides_{};
  Kokkos::View<T*, Memory> storage_;
  std::shared_ptr<void> memory_;  // owns the memory of storage_ if it is shared
  typename Kokkos::View<T*, Memory>::HostMirror host_;
};

template <class T>
double dot(TestTensor<T>& a, const std::vector<double>& b) {
  double sum = 0;
  std::size_t i = 0;
  for_each_cell(a.box(), [&](const Cell& c) { sum += static_cast<double>(a.at(c)) * b[i++]; });
  return sum;
}

/// The values of a tensor in the order of its box, as of the last download().
template <class T>
std::vector<double> cells(TestTensor<T>& a) {
  std::vector<double> values;
  for_each_cell(a.box(), [&](const Cell& c) { values.push_back(static_cast<double>(a.at(c))); });
  return values;
}

}  // namespace aloni::halo::testing_support
