#include <aloni/core/blas_library.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/solve.hpp>

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::tasks {
namespace test_factorisations {

using testing::HasSubstr;
using views::TileDistribution;
using views::TileShape;

/// Column-major.
template <class T>
struct Dense {
  Index rows, columns;
  std::vector<T> data = std::vector<T>(static_cast<std::size_t>(rows * columns));

  T& operator()(Index i, Index j) { return data[static_cast<std::size_t>(j * rows + i)]; }
  const T& operator()(Index i, Index j) const { return data[static_cast<std::size_t>(j * rows + i)]; }
};

double random_value(Index i, Index j) {
  return 2 * random::host_uniform(7, 0, static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint64_t>(j)) - 1;
}

/// Symmetric, with a diagonal that dominates.
double positive_definite(Index i, Index j, Index n) {
  return random_value(std::max(i, j), std::min(i, j)) + (i == j ? static_cast<double>(n) : 0);
}

/// Not symmetric, with a diagonal that dominates, of both signs.
double dominant(Index i, Index j, Index n) {
  return random_value(i, j) + (i == j ? (i % 2 ? -1.0 : 1.0) * static_cast<double>(n) : 0);
}

template <class T>
Dense<T> dense(const TileMatrix<T>& a) {
  Dense<T> all{a.distribution().rows(), a.distribution().columns()};
  a.copy_to(all.data.data(), all.rows);
  return all;
}

template <class T>
class Factorisations : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Factorisations, Types);

/// Sizes of one tile, of whole tiles, and with small tiles at the border; tiles of one element too.
constexpr std::pair<Index, Index> sizes[] = {{1, 1},   {5, 8},    {7, 1},    {64, 16},
                                             {65, 16}, {130, 33}, {200, 48}, {210, 90}};

/// The same with tiles of which the rows are a multiple of the columns.
constexpr std::pair<Index, TileShape> shapes[] = {{1, 1},        {5, 8},          {7, 1},          {64, 16},
                                                  {65, 16},      {130, 33},       {200, 48},       {7, {3, 1}},
                                                  {64, {32, 8}}, {130, {99, 33}}, {131, {20, 10}}, {210, {360, 90}}};

TYPED_TEST(Factorisations, CholeskyTimesItsTransposeIsTheMatrix) {
  using T = TypeParam;
  for (const auto& [n, shape] : shapes) {
    TileMatrix<T> a(TileDistribution(n, n, shape), TilePart::lower);
    a.fill([n = n](Index i, Index j) { return positive_definite(i, j, n); });
    const RunReport report = cholesky(a, {.workers = 2});
    const Index columns = a.distribution().tile_columns();
    Index tasks = 0;  // column j has that many tiles, each of which is written j + 1 times
    for (Index j = 0; j < columns; ++j)
      tasks += (j + 1) * (a.distribution().tile_rows() - a.distribution().diagonal_row(j));
    EXPECT_EQ(report.tasks, tasks);
    const Dense<T> l = dense(a);
    const double bound = 4 * static_cast<double>(n) * std::numeric_limits<T>::epsilon();
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) {
        double product = 0;
        for (Index k = 0; k <= j; ++k) product += static_cast<double>(l(i, k)) * static_cast<double>(l(j, k));
        ASSERT_NEAR(product, static_cast<T>(positive_definite(i, j, n)), bound * static_cast<double>(n))
            << to_string(a.distribution()) << ": " << i << ", " << j;
      }
  }
}

TYPED_TEST(Factorisations, LuTimesEachOtherIsTheMatrix) {
  using T = TypeParam;
  for (const auto& [n, tile] : sizes) {
    TileMatrix<T> a(TileDistribution(n, n, tile));
    a.fill([n = n](Index i, Index j) { return dominant(i, j, n); });
    const RunReport report = lu(a, {.workers = 2});
    const Index tiles = a.distribution().tile_rows();
    EXPECT_EQ(report.tasks, tiles * (tiles + 1) * (2 * tiles + 1) / 6);
    const Dense<T> f = dense(a);
    const double bound = 4 * static_cast<double>(n * n) * std::numeric_limits<T>::epsilon();
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) {
        double product = i <= j ? static_cast<double>(f(i, j)) : 0;
        for (Index k = 0; k < std::min(i, j + 1); ++k)
          product += static_cast<double>(f(i, k)) * static_cast<double>(f(k, j));
        ASSERT_NEAR(product, static_cast<T>(dominant(i, j, n)), bound)
            << n << " in tiles of " << tile << ": " << i << ", " << j;
      }
  }
}

TYPED_TEST(Factorisations, SolveGivesTheSolutionOfTheSystem) {
  using T = TypeParam;
  for (const Factors kind : {Factors::cholesky, Factors::lu})
    for (const auto& [n, shape] : shapes)
      for (const Index columns : {Index{1}, shape.columns + 2}) {
        const Index tile = shape.columns;
        if (kind == Factors::lu && shape.rows != tile) continue;
        const auto element = [kind, n = n](Index i, Index j) {
          return kind == Factors::lu ? dominant(i, j, n) : positive_definite(i, j, n);
        };
        Dense<double> all{n, n}, x{n, columns};
        for (Index i = 0; i < n; ++i) {
          for (Index j = 0; j < n; ++j) all(i, j) = element(i, j);
          for (Index j = 0; j < columns; ++j) x(i, j) = random_value(i + 1000, j);
        }
        TileMatrix<T> a(TileDistribution(n, n, shape), kind == Factors::lu ? TilePart::whole : TilePart::lower);
        a.fill([&](Index i, Index j) { return all(i, j); });
        TileMatrix<T> b(TileDistribution(n, columns, tile));
        b.fill([&, n = n](Index i, Index j) {
          double sum = 0;
          for (Index k = 0; k < n; ++k) sum += all(i, k) * x(k, j);
          return sum;
        });
        kind == Factors::lu ? lu(a, {.workers = 1}) : cholesky(a, {.workers = 1});
        solve(kind, a, b, {.workers = 3});
        const Dense<T> found = dense(b);
        const double bound = 20 * static_cast<double>(n) * std::numeric_limits<T>::epsilon();
        for (Index i = 0; i < n; ++i)
          for (Index j = 0; j < columns; ++j)
            ASSERT_NEAR(static_cast<double>(found(i, j)), x(i, j), bound) << n << " in tiles of " << tile;
      }
}

/// For equal tiles, each order of the tasks on any number of workers gives the same bits.
TYPED_TEST(Factorisations, BitsDoNotDependOnTheSchedule) {
  using T = TypeParam;
  constexpr Index n = 150, tile = 16;
  const auto bits = [&](Factors kind, RuntimeOptions options) {
    TileMatrix<T> a(TileDistribution(n, n, tile)), b(TileDistribution(n, 20, tile));
    a.fill([&](Index i, Index j) { return kind == Factors::lu ? dominant(i, j, n) : positive_definite(i, j, n); });
    b.fill(random_value);
    kind == Factors::lu ? lu(a, options) : cholesky(a, options);
    solve(kind, a, b, options);
    return std::pair(dense(a).data, dense(b).data);
  };
  for (const Factors kind : {Factors::cholesky, Factors::lu}) {
    const auto serial = bits(kind, {.workers = 1});
    for (const int workers : {1, 2, 5})
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const auto other = bits(kind, {.workers = workers, .schedule_seed = seed});
        ASSERT_EQ(std::memcmp(other.first.data(), serial.first.data(), serial.first.size() * sizeof(T)), 0)
            << workers << " workers, seed " << seed;
        ASSERT_EQ(std::memcmp(other.second.data(), serial.second.data(), serial.second.size() * sizeof(T)), 0)
            << workers << " workers, seed " << seed;
      }
  }
}

TYPED_TEST(Factorisations, ErrorsNameTheTileAndTheColumnOfTheFirstBadPivot) {
  using T = TypeParam;
  constexpr Index n = 100, tile = 16;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const int workers : {1, 3})
    for (const T bad : {T(-1), T(0), nan, std::numeric_limits<T>::infinity()}) {
      TileMatrix<T> a(TileDistribution(n, n, tile), TilePart::lower);
      // The identity but for two elements of the diagonal: the first counts.
      a.fill([&](Index i, Index j) { return i != j ? T(0) : i == 53 || i == 90 ? bad : T(1); });
      try {
        cholesky(a, {.workers = workers});
        FAIL() << bad;
      } catch (const FactorisationError& e) {
        EXPECT_EQ(e.operation(), "aloni::tasks::cholesky");
        EXPECT_EQ(e.argument(), "tile (3, 3), column 53");
        EXPECT_THAT(e.what(), HasSubstr("a positive definite matrix"));
      }
    }
  for (const T bad : {T(0), nan}) {
    TileMatrix<T> a(TileDistribution(n, n, tile));
    a.fill([&](Index i, Index j) { return i != j ? T(0) : i == 53 ? bad : T(1); });
    try {
      lu(a, {.workers = 2});
      FAIL() << bad;
    } catch (const FactorisationError& e) {
      EXPECT_EQ(e.argument(), "tile (3, 3), column 53");
      EXPECT_THAT(e.what(), HasSubstr("needs no pivoting"));
    }
  }
}

TYPED_TEST(Factorisations, ElementsAboveTheDiagonalAreNeitherReadNorWritten) {
  using T = TypeParam;
  constexpr Index n = 50, tile = 16;
  TileMatrix<T> a(TileDistribution(n, n, tile));
  a.fill([](Index i, Index j) { return j > i ? std::nan("") : positive_definite(i, j, n); });
  cholesky(a, {.workers = 2});
  const Dense<T> l = dense(a);
  for (Index j = 0; j < n; ++j)
    for (Index i = 0; i < n; ++i) ASSERT_EQ(std::isnan(l(i, j)), j > i) << i << ", " << j;
}

TYPED_TEST(Factorisations, CopiesKeepThePlaceOfEachElement) {
  using T = TypeParam;
  for (const auto& [n, tile] : sizes) {
    Dense<T> from{n, n + 3}, to{n, n + 3};
    for (Index j = 0; j < n + 3; ++j)
      for (Index i = 0; i < n; ++i) from(i, j) = static_cast<T>(i * 1000 + j);
    TileMatrix<T> a(TileDistribution(n, n + 3, tile));
    a.copy_from(from.data.data(), n);
    a.copy_to(to.data.data(), n);
    EXPECT_EQ(from.data, to.data);
    TileMatrix<T> filled(TileDistribution(n, n + 3, tile));
    filled.fill([](Index i, Index j) { return i * 1000 + j; });
    EXPECT_EQ(dense(filled).data, from.data);
    TileMatrix<T> copied(TileDistribution(n, n + 3, tile)), other(TileDistribution(n, n + 3, tile + 1));
    copied.copy_from(filled);
    EXPECT_EQ(dense(copied).data, from.data);
    EXPECT_THROW(other.copy_from(filled), InvalidArgument);
    for (Index j = 0; j < a.distribution().tile_columns(); ++j)
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.tile({0, j})) % 64, 0U);
  }
}

TEST(TileMatrix, KeepsLowerTilesOrTheTilesOfARankOnly) {
  const TileMatrix<double> lower(TileDistribution(100, 100, 25), TilePart::lower);
  EXPECT_EQ(lower.bytes(), 10 * 632 * 8) << "625 elements, in whole cache lines";
  const TileMatrix<double> tall(TileDistribution(100, 100, {50, 25}), TilePart::lower);
  EXPECT_EQ(tall.bytes(), (2 + 2 + 1 + 1) * 1256 * 8) << "1,250 elements, in whole cache lines";
  EXPECT_TRUE(tall.has({0, 1}));
  EXPECT_FALSE(tall.has({0, 2}));
  EXPECT_TRUE(lower.has({2, 2}));
  EXPECT_FALSE(lower.has({1, 2}));
  const TileMatrix<double> part(TileDistribution(100, 100, 25, {2, 2}), TilePart::whole, 3);
  EXPECT_EQ(part.bytes(), 4 * 632 * 8);
  EXPECT_TRUE(part.has({1, 3}));
  EXPECT_FALSE(part.has({1, 2}));
  EXPECT_THROW(TileMatrix<double>(TileDistribution(4, 4, 2), TilePart::whole, 1), InvalidArgument);
  EXPECT_THROW(TileMatrix<double>(TileDistribution(4, 5, 2), TilePart::lower), InvalidArgument);
  EXPECT_THROW(TileMatrix<double>(TileDistribution(4, 4, Index{1} << 31)), InvalidArgument);
}

TEST(SuggestedTile, GivesEachWorkerTilesToTheEnd) {
  EXPECT_EQ(suggested_tile(2048, 2), TileShape(816, 136));
  EXPECT_EQ(suggested_tile(4096, 1), TileShape(1584, 264));
  EXPECT_EQ(suggested_tile(100'000, 4), TileShape(2544, 424));
  EXPECT_EQ(suggested_tile(8192, 8), TileShape(792, 264));
  EXPECT_EQ(suggested_tile(100, 2), TileShape(40));
  EXPECT_EQ(suggested_tile(4096, 2, 100), TileShape(600, 100));
  EXPECT_EQ(suggested_tile(4096, 64, 100), TileShape(100));
  EXPECT_THROW(suggested_tile(0, 2), InvalidArgument);
  EXPECT_THROW(suggested_tile(100, 0), InvalidArgument);
}

TEST(SuggestedLuTile, GivesEachWorkerTilesToTheEnd) {
  EXPECT_EQ(suggested_lu_tile(2048, 2), 256);
  EXPECT_EQ(suggested_lu_tile(4096, 1), 512);
  EXPECT_EQ(suggested_lu_tile(100'000, 4), 512);
  EXPECT_EQ(suggested_lu_tile(8192, 8), 256);
  EXPECT_EQ(suggested_lu_tile(100, 2), 64);
  EXPECT_THROW(suggested_lu_tile(0, 2), InvalidArgument);
}

TEST(FactorisationArguments, AreChecked) {
  TileMatrix<double> wide(TileDistribution(4, 6, 2)), a(TileDistribution(4, 4, 2)),
      lower(TileDistribution(4, 4, 2), TilePart::lower), ranks(TileDistribution(4, 4, 2, {1, 2}));
  EXPECT_THROW(cholesky(wide), InvalidArgument);
  EXPECT_THROW(lu(wide), InvalidArgument);
  EXPECT_THROW(lu(lower), InvalidArgument);
  TileMatrix<double> uneven(TileDistribution(6, 6, {3, 2})), tall(TileDistribution(4, 4, {4, 2}));
  EXPECT_THROW(cholesky(uneven), InvalidArgument);
  EXPECT_THROW(lu(tall), InvalidArgument);
  EXPECT_THROW(cholesky(ranks), Unsupported);
  EXPECT_THROW(cholesky(a, {.owns = [](const TileId&) { return true; }}), InvalidArgument);
  TileMatrix<double> other_tiles(TileDistribution(4, 1, 4)), other_rows(TileDistribution(6, 1, 2));
  EXPECT_THROW(solve(Factors::cholesky, a, other_tiles), InvalidArgument);
  EXPECT_THROW(solve(Factors::cholesky, a, other_rows), InvalidArgument);
  TileMatrix<double> b(TileDistribution(4, 1, 2));
  EXPECT_THROW(solve(Factors::lu, lower, b), InvalidArgument);
  EXPECT_THROW(solve(Factors::lu, tall, b), InvalidArgument);
}

/// A function of OpenMP, if the program has OpenMP.
template <class F>
F* openmp(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

/// OpenBLAS on OpenMP asks OpenMP how many threads the calling thread may use.
TEST(OneBlasThread, LimitsItsOwnThreadOnlyAndOnlyWhileItLives) {
  auto* const get = openmp<int()>("omp_get_max_threads");
  auto* const set = openmp<void(int)>("omp_set_num_threads");
  if (blas_library().threading != BlasLibrary::Threading::openmp || !get || !set)
    GTEST_SKIP() << "not the threads of OpenMP: " << blas_library().name;
  const int before = get();
  set(5);
  {
    const OneBlasThread one;
    EXPECT_EQ(get(), 1);
    {
      const OneBlasThread again;
      EXPECT_EQ(get(), 1);
    }
    EXPECT_EQ(get(), 1);
    std::thread([&] {
      set(4);
      { const OneBlasThread other; }
      EXPECT_EQ(get(), 4);
    }).join();
    EXPECT_EQ(get(), 1);
  }
  EXPECT_EQ(get(), 5);
  TileMatrix<double> a(TileDistribution(64, 64, 16));
  a.fill([](Index i, Index j) { return positive_definite(i, j, 64); });
  cholesky(a, {.workers = 2});
  EXPECT_EQ(get(), 5) << "the calling thread is a worker";
  set(before);
}

}  // namespace test_factorisations
}  // namespace aloni::tasks
