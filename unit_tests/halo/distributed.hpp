#pragma once
// Functions with which tests write and read cells of DistributedViews by global index, ghosts included, on any device.
#include <aloni/views/distributed_view.hpp>

#include <halo/test_tensor.hpp>

namespace aloni::halo::testing_support {

template <class T, int R, class F>
void visit(const views::DistributedView<T, R, Kokkos::HostSpace>& host, F&& f) {
  const auto local = host.local_unchecked();
  const Box box = host.box_with_ghosts();
  for_each_cell(box, [&](const Cell& c) {
    f(c, local(c[0] - box.lo[0], c[1] - box.lo[1], c[2] - box.lo[2], c[3] - box.lo[3], c[4] - box.lo[4]));
  });
}

/// Sets every cell, ghosts included, to f(cell).
template <class T, int R, class F>
void set_cells(const views::DistributedView<T, R>& view, F&& f) {
  const auto host = views::create_mirror_view(view);
  visit(host, [&](const Cell& c, T& value) { value = static_cast<T>(f(c)); });
  if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(Exec{}, view, host);
}

/// Calls f(cell, value) for every cell, ghosts included.
template <class T, int R, class F>
void for_each_value(const views::DistributedView<T, R>& view, F&& f) {
  const auto host = views::create_mirror_view(view);
  if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(Exec{}, host, view);
  visit(host, [&](const Cell& c, const T& value) { f(c, static_cast<double>(value)); });
}

}  // namespace aloni::halo::testing_support
