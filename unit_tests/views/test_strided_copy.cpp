#include <aloni/views/strided_copy.hpp>

#include <aloni/views/for_each.hpp>

#include <gmock/gmock.h>
#include <support/sanitizer.hpp>

#include <numeric>
#include <random>

namespace aloni::views {
namespace test_strided_copy {

using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;
constexpr const char* label = "aloni::test: copy";

// Source and destination of a copy, and their values on the host. The tested copy runs in the default space.
template <class T>
struct Sides {
  Kokkos::View<T*, Memory> source, destination;
  std::vector<T> host_source, host_destination;

  Sides(std::size_t source_size, std::size_t destination_size, unsigned seed)
      : source("aloni::test: source", source_size),
        destination("aloni::test: destination", destination_size),
        host_source(source_size),
        host_destination(destination_size) {
    std::mt19937 random(seed);
    for (auto* v : {&host_source, &host_destination})
      for (T& x : *v) x = static_cast<T>(static_cast<int>(random() % 1000));
    Kokkos::deep_copy(source, Kokkos::View<T*, Kokkos::HostSpace>(host_source.data(), host_source.size()));
    Kokkos::deep_copy(destination,
                      Kokkos::View<T*, Kokkos::HostSpace>(host_destination.data(), host_destination.size()));
  }
  std::vector<T> result() {
    std::vector<T> r(host_destination.size());
    Kokkos::deep_copy(Kokkos::View<T*, Kokkos::HostSpace>(r.data(), r.size()), destination);
    return r;
  }
};

// The definition of a strided copy, cell by cell.
template <class T>
void reference(const std::vector<T>& source, std::vector<T>& destination, const StridedCopy& copy, CopyMode mode) {
  std::vector<bool> written(destination.size(), mode == CopyMode::add);
  const auto& e = copy.extents;
  for (Index a = 0; a < e[0]; ++a)
    for (Index b = 0; b < e[1]; ++b)
      for (Index c = 0; c < e[2]; ++c)
        for (Index d = 0; d < e[3]; ++d)
          for (Index f = 0; f < e[4]; ++f) {
            Index s = copy.source_offset, t = copy.destination_offset;
            const Index at[5] = {a, b, c, d, f};
            for (std::size_t i = 0; i < 5; ++i) {
              s += at[i] * copy.source_strides[i];
              t += at[i] * copy.destination_strides[i];
            }
            auto& cell = destination[static_cast<std::size_t>(t)];
            cell = written[static_cast<std::size_t>(t)] ? cell + source[static_cast<std::size_t>(s)]
                                                        : source[static_cast<std::size_t>(s)];
            written[static_cast<std::size_t>(t)] = true;
          }
}

// Random strides of distinct cells: random order of dimensions, with gaps, some strides negative, some zero.
Index random_side(std::mt19937& random, const std::array<Index, 5>& extents, bool may_stand_still, Index& offset,
                  std::array<Index, 5>& strides) {
  std::array<std::size_t, 5> order{0, 1, 2, 3, 4};
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  Index stride = 1;
  offset = 0;
  for (std::size_t i = 5; i-- > 0;) {
    const std::size_t d = order[i];
    if (may_stand_still && random() % 5 == 0) {
      strides[d] = 0;
      continue;
    }
    strides[d] = stride;
    stride *= extents[d];
    if (random() % 3 == 0) stride += static_cast<Index>(random() % 3);
    if (random() % 4 == 0) {
      offset += (extents[d] - 1) * strides[d];
      strides[d] = -strides[d];
    }
  }
  return std::max<Index>(stride, 1);
}

template <class T>
class StridedCopyOf : public testing::Test {};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(StridedCopyOf, Precisions);

TYPED_TEST(StridedCopyOf, AgreesWithItsDefinition) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    StridedCopy copy;
    // Row lengths with a loop of their own and others. Threads share large copies.
    for (auto& e : copy.extents)
      e = static_cast<Index>(random() % (seed % 20 == 0 ? 14 : 5) + (random() % 20 == 0 ? 0 : 1));
    if (random() % 3 == 0) copy.extents[4] = static_cast<Index>(1 + random() % 40);
    const Index source_size = random_side(random, copy.extents, true, copy.source_offset, copy.source_strides);
    const Index destination_size =
        random_side(random, copy.extents, true, copy.destination_offset, copy.destination_strides);
    const CopyMode mode = random() % 2 == 0 ? CopyMode::assign : CopyMode::add;
    Sides<TypeParam> s(static_cast<std::size_t>(source_size), static_cast<std::size_t>(destination_size), seed);
    const Exec exec;
    strided_copy(exec, label, static_cast<const TypeParam*>(s.source.data()), s.destination.data(), copy, mode);
    exec.fence("aloni::test: before reading");
    reference(s.host_source, s.host_destination, copy, mode);
    ASSERT_EQ(s.result(), s.host_destination) << "seed " << seed;
  }
}

TYPED_TEST(StridedCopyOf, SharesOneLongRowAmongThreads) {
  for (Index n : {1 << 14, 1 << 15, 3 << 14, (1 << 15) + 1}) {
    StridedCopy copy;
    copy.extents = {1, 1, 1, 1, n};
    copy.source_strides = copy.destination_strides = {n, n, n, n, 1};
    Sides<TypeParam> s(static_cast<std::size_t>(n), static_cast<std::size_t>(n), 1);
    const Exec exec;
    strided_copy(exec, label, static_cast<const TypeParam*>(s.source.data()), s.destination.data(), copy);
    exec.fence("aloni::test: before reading");
    EXPECT_EQ(s.result(), s.host_source);
  }
}

// Columns of ghosts: many short rows. Rows of whole cache lines on different pages are written past the caches.
TYPED_TEST(StridedCopyOf, CopiesManyShortRows) {
  using T = TypeParam;
  constexpr Index line = 64 / sizeof(T), rows = aloni::test::share_of(5000);
  for (const Index step : {21 * line, 65 * line}) {
    for (const Index cells : {line, 3 * line, line + 1, 20 * line}) {
      for (const Index shift : {Index{0}, Index{1}}) {
        StridedCopy copy{.source_offset = 3, .destination_offset = shift};
        copy.extents = {1, 1, rows, 1, cells};
        copy.source_strides = {0, 0, step + 5, 0, 1};
        copy.destination_strides = {0, 0, step, 0, 1};
        Sides<T> sides(static_cast<std::size_t>(rows * (step + 5)), static_cast<std::size_t>(rows * step), 11);
        reference(sides.host_source, sides.host_destination, copy, CopyMode::assign);
        strided_copy(Exec{}, label, sides.source.data(), sides.destination.data(), copy, CopyMode::assign);
        Exec{}.fence("aloni::test: copied");
        EXPECT_EQ(sides.result(), sides.host_destination)
            << cells << " cells every " << step << ", shifted by " << shift;
      }
    }
  }
}

TEST(StridedCopyList, RunsItsBatchesInOrder) {
  // Three sums into the same cells and a fill between them. The result is right only in the order of the batches.
  // If the batches ran at the same time, threads would write into each other's cells.
  using List = StridedCopyList<double, Exec>;
  constexpr Index side = 1000, n = side * side;
  Sides<double> s(n, n, 5);
  StridedCopy all;
  all.extents = {1, 1, 1, side, side};
  all.source_strides = all.destination_strides = {n, n, n, side, 1};
  StridedCopy backwards = all;
  backwards.source_offset = n - 1;
  for (auto& stride : backwards.source_strides) stride = -stride;
  const double *source = s.source.data(), *nothing = nullptr;
  double* destination = s.destination.data();
  const Exec exec;
  const List list(exec, label,
                  {{source, destination, all, CopyMode::add, 0},
                   {nothing, destination, all, CopyMode::assign, 1},
                   {source, destination, all, CopyMode::add, 2},
                   {source, destination, backwards, CopyMode::add, 3}});
  EXPECT_FALSE(list.empty());
  for (int repeat = 0; repeat < 5; ++repeat) {
    list.run(exec);
    exec.fence("aloni::test: before reading");
    const auto result = s.result();
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(result[i], s.host_source[i] + s.host_source[n - 1 - i]);
  }
}

TEST(StridedCopyList, IsEmptyIfAllCopiesAreEmpty) {
  StridedCopy none;
  none.extents[2] = 0;
  double x = 0;
  const StridedCopyList<double, Exec> list(Exec{}, label, {{&x, &x, none, CopyMode::assign, 0}});
  EXPECT_TRUE(list.empty());
  list.run(Exec{});
}

TEST(Fill, SetsOnlyTheCellsOfTheView) {
  Kokkos::View<float*, Memory> memory("aloni::test: memory", 240);
  const Kokkos::LayoutStride layout(2, 120, 1, 60, 3, 20, 2, 8, 4, 2);
  const Exec exec;
  fill(exec, "aloni::test: fill", LocalView<float, Memory>(memory.data(), layout), 3.0F);
  exec.fence("aloni::test: before reading");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, memory);
  EXPECT_EQ(std::count(host.data(), host.data() + 240, 3.0F), 48);
  EXPECT_EQ(std::count(host.data(), host.data() + 240, 0.0F), 192);
  EXPECT_EQ(host(120 + 40 + 8 + 6), 3.0F);
}

struct AddNumber {
  LocalView<double, Memory> view;
  KOKKOS_FUNCTION void operator()(Index n, Index d, Index h, Index w, Index c) const {
    view(n, d, h, w, c) += static_cast<double>(c + 10 * (w + 10 * (h + 10 * (d + 10 * n))));
  }
};

TEST(ForEachElement, VisitsEachCellOnce) {
  for (const Extents extents : {Extents{{2, 3, 4, 5, 6}}, Extents{{3, 1, 2, 7, 1}}, Extents{{2, 0, 3, 1, 1}}}) {
    Kokkos::View<double*****, Kokkos::LayoutRight, Memory> view("aloni::test: view", extents.values[0],
                                                                extents.values[1], extents.values[2], extents.values[3],
                                                                extents.values[4]);
    const Exec exec;
    for_each_element(exec, "aloni::test: each", extents, AddNumber{view});
    exec.fence("aloni::test: before reading");
    EXPECT_EQ(extents_of_view(view), extents);
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
    for (Index n = 0; n < extents.values[0]; ++n)
      for (Index d = 0; d < extents.values[1]; ++d)
        for (Index h = 0; h < extents.values[2]; ++h)
          for (Index w = 0; w < extents.values[3]; ++w)
            for (Index c = 0; c < extents.values[4]; ++c)
              ASSERT_EQ(host(n, d, h, w, c), c + 10 * (w + 10 * (h + 10 * (d + 10 * n))));
  }
}

}  // namespace test_strided_copy
}  // namespace aloni::views
