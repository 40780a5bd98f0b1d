// A View must reach a kernel as the host made it. Compilers can disagree about the places of its members: nvcc and GCC
// did (cmake/patches/kokkos-4.7.0-no-unique-address.patch). Then kernels read wrong pointers, without any error.
#include <Kokkos_Core.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace aloni_test {
namespace test_view_layout {

using Exec = Kokkos::DefaultExecutionSpace;
using Space = Exec::memory_space;
using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;

/// What is compared: size, address of the first element, extents and strides.
struct Layout {
  std::size_t size = 0, span = 0;
  std::uintptr_t address = 0;
  std::size_t extents[5] = {}, strides[5] = {};
};

template <class View>
KOKKOS_FUNCTION void describe(const View& view, Layout& layout) {
  layout.size = sizeof(View);
  layout.span = view.span();
  layout.address = reinterpret_cast<std::uintptr_t>(view.data());
  for (std::size_t i = 0; i < View::rank(); ++i) {
    layout.extents[i] = view.extent(i);
    layout.strides[i] = static_cast<std::size_t>(view.stride(static_cast<int>(i)));
  }
}

/// Numbers around the View show where the kernel expects it to end.
template <class View>
struct Describe {
  std::uint64_t before;
  View view;
  std::uint64_t behind;
  Layout* result;
  std::uint64_t* around;
  KOKKOS_FUNCTION void operator()(int) const {
    describe(view, *result);
    around[0] = before;
    around[1] = behind;
  }
};

/// Runs first: with a wrong layout Describe would write anywhere.
template <class View>
struct SizeOnly {
  std::size_t* size;
  KOKKOS_FUNCTION void operator()(int) const { *size = sizeof(Describe<View>); }
};

template <class View>
void expect_same_layout(const View& view, const char* what) {
  Kokkos::View<std::byte[1024], Space> memory("aloni::test::layouts");
  auto* const sizes = reinterpret_cast<std::size_t*>(memory.data());
  Kokkos::parallel_for("aloni::test::size", Kokkos::RangePolicy<Exec>(0, 1), SizeOnly<View>{sizes});
  auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), memory);
  ASSERT_EQ(*reinterpret_cast<const std::size_t*>(host.data()), sizeof(Describe<View>)) << what;

  auto* const result = reinterpret_cast<Layout*>(memory.data());
  auto* const around = reinterpret_cast<std::uint64_t*>(memory.data() + 512);
  Kokkos::parallel_for("aloni::test::describe", Kokkos::RangePolicy<Exec>(0, 1),
                       Describe<View>{0x0123456789abcdef, view, 0xfedcba9876543210, result, around});
  Kokkos::deep_copy(host, memory);
  Layout expected;
  describe(view, expected);
  const auto& found = *reinterpret_cast<const Layout*>(host.data());
  EXPECT_EQ(found.size, expected.size) << what;
  EXPECT_EQ(found.span, expected.span) << what;
  EXPECT_EQ(found.address, expected.address) << what;
  for (std::size_t i = 0; i < View::rank(); ++i) {
    EXPECT_EQ(found.extents[i], expected.extents[i]) << what << ", dimension " << i;
    EXPECT_EQ(found.strides[i], expected.strides[i]) << what << ", dimension " << i;
  }
  const auto* const numbers = reinterpret_cast<const std::uint64_t*>(host.data() + 512);
  EXPECT_EQ(numbers[0], 0x0123456789abcdef) << what;
  EXPECT_EQ(numbers[1], 0xfedcba9876543210) << what;
}

TEST(ViewLayout, IsTheSameInAKernel) {
  using Kokkos::LayoutLeft, Kokkos::LayoutRight, Kokkos::LayoutStride;
  const Kokkos::View<double*, Space> managed("aloni::test::managed", 7);
  expect_same_layout(managed, "managed, rank 1");
  expect_same_layout(Kokkos::View<const double*, Space>(managed), "managed, constant");
  expect_same_layout(Kokkos::View<double*, LayoutRight, Space, Unmanaged>(managed.data(), 7), "right, rank 1");
  expect_same_layout(Kokkos::View<double*, LayoutLeft, Space, Unmanaged>(managed.data(), 7), "left, rank 1");
  expect_same_layout(Kokkos::View<double*, LayoutStride, Space, Unmanaged>(managed.data(), LayoutStride(3, 2)),
                     "strided, rank 1");
  expect_same_layout(Kokkos::View<float**, LayoutRight, Space>("aloni::test::matrix", 3, 5), "right, rank 2");
  expect_same_layout(Kokkos::View<float**, LayoutLeft, Space>("aloni::test::matrix", 3, 5), "left, rank 2");
  expect_same_layout(Kokkos::View<double[3], Space>("aloni::test::array"), "extent of the type");
  const Kokkos::View<float*****, LayoutRight, Space> tensor("aloni::test::tensor", 2, 3, 4, 5, 6);
  expect_same_layout(tensor, "right, rank 5");
  expect_same_layout(Kokkos::subview(tensor, Kokkos::pair(0, 1), Kokkos::pair(1, 3), Kokkos::pair(0, 4),
                                     Kokkos::pair(2, 4), Kokkos::pair(1, 5)),
                     "a part of a tensor");
  expect_same_layout(Kokkos::View<double*, Space, Kokkos::MemoryTraits<Kokkos::Atomic>>(managed), "atomic");
}

}  // namespace test_view_layout
}  // namespace aloni_test
