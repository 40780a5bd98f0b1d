#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/solve.hpp>

#include <support/failing_files.hpp>
#include <support/sanitizer.hpp>
#include <support/temporary_folder.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace aloni::tasks {
namespace test_memory_limit {

using aloni::test::FailingFiles;
using aloni::test::TemporaryFolder;
using testing::HasSubstr;
using views::TileDistribution;
using views::TileShape;

constexpr Index n = 230;  // rows; the last tiles are smaller

double element(Index i, Index j) {
  const auto index = static_cast<std::uint64_t>(std::max(i, j)) << 32 | static_cast<std::uint64_t>(std::min(i, j));
  return 2 * random::host_uniform(7, 0, index) - 1 + (i == j ? static_cast<double>(n) : 0);
}

struct Case {
  bool lu = false;
  TileShape tile{16};
  TilePart part() const { return lu ? TilePart::whole : TilePart::lower; }
};
const Case cases[] = {{}, {.tile = {48, 16}}, {.lu = true, .tile = 24}};

template <class T>
TileMatrix<T> factor(const Case& c) {
  TileMatrix<T> a(TileDistribution(n, n, c.tile), c.part());
  a.fill(element);
  c.lu ? lu(a, {.workers = 1}) : cholesky(a, {.workers = 1});
  return a;
}

template <class T>
LimitedReport factorise(const Case& c, StoredMatrix<T>& a, const MemoryLimit& limit, const RuntimeOptions& options) {
  return c.lu ? lu(a, limit, options) : cholesky(a, limit, options);
}

template <class T>
void expect_equal(const StoredMatrix<T>& found, const TileMatrix<T>& expected) {
  TileMatrix<T> a(expected.distribution(), expected.part());
  found.copy_to(a);
  for (const views::Tile& t : a.distribution().tiles_of(0)) {
    if (!a.has(t)) continue;
    const auto bytes =
        static_cast<std::size_t>(a.distribution().height(t.row) * a.distribution().width(t.column)) * sizeof(T);
    ASSERT_EQ(std::memcmp(a.tile(t), expected.tile(t), bytes), 0) << to_string(t);
  }
}

/// The least limit of a case: three tiles, in whole cache lines.
template <class T>
Index least(const Case& c) {
  return 3 * ceil_div(c.tile.rows * c.tile.columns * static_cast<Index>(sizeof(T)), 64) * 64;
}

/// Of the tiles on and below the diagonal of a matrix with square tiles, or on and above it.
template <class T>
Index triangle_bytes(const StoredMatrix<T>& a) {
  Index bytes = 0;
  for (const views::Tile& t : a.distribution().tiles_of(0))
    if (t.row >= t.column) bytes += a.distribution().elements(t) * static_cast<Index>(sizeof(T));
  return bytes;
}

template <class T>
class MemoryLimits : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(MemoryLimits, Types);

TYPED_TEST(MemoryLimits, GiveTheBitsOfARunWithoutLimit) {
  using T = TypeParam;
  const TemporaryFolder folder;
  int number = 0;
  for (const Case& c : cases) {
    const TileMatrix<T> expected = factor<T>(c);
    for (const int percent : {100, 75, 50, 25, 0})
      for (const int workers : {1, 3})
        for (const std::uint64_t seed : {0, 1, 2}) {
          if (!aloni::test::is_in_share(number++)) continue;
          const Eviction eviction = seed == 2 ? Eviction::lru : Eviction::furthest;
          std::unique_ptr<TileStore> store;
          if (seed == 1) {
            store = std::make_unique<FileTileStore>(io::real_file_system(), folder.path("tiles"));
          } else {
            store = std::make_unique<MemoryTileStore>();
          }
          StoredMatrix<T> a(TileDistribution(n, n, c.tile), c.part(), *store);
          a.fill(element);
          const MemoryLimit limit{.bytes = std::max(least<T>(c), a.bytes() * percent / 100), .eviction = eviction};
          const LimitedReport report = factorise(c, a, limit, {.workers = workers, .schedule_seed = seed});
          expect_equal(a, expected);
          EXPECT_EQ(report.compulsory_bytes, 2 * a.bytes());
          EXPECT_GE(report.swaps.bytes(), report.compulsory_bytes);
          EXPECT_TRUE(percent < 100 || report.swaps.bytes() <= report.compulsory_bytes * 11 / 10);
          EXPECT_GE(report.swaps.bytes_out, a.bytes());
          EXPECT_LE(report.slots * least<T>(c) / 3, limit.bytes);
          if (this->HasFailure()) FAIL() << percent << " %, " << workers << " workers, seed " << seed;
        }
  }
}

TYPED_TEST(MemoryLimits, HalfOfTheMatrixMovesLittleMoreThanItMust) {
  using T = TypeParam;
  MemoryTileStore store;
  StoredMatrix<T> a(TileDistribution(512, 512, 32), TilePart::lower, store);
  const auto moved = [&](Eviction eviction, std::optional<TileShape> block) {
    a.fill([](Index i, Index j) { return i == j ? 512.0 : element(i, j); });
    const LimitedReport report =
        cholesky(a, {.bytes = a.bytes() / 2, .eviction = eviction, .block = block}, {.workers = 2});
    EXPECT_EQ(report.compulsory_bytes, 2 * a.bytes());
    return static_cast<double>(report.swaps.bytes()) / static_cast<double>(report.compulsory_bytes);
  };
  const double furthest = moved(Eviction::furthest, {});
  EXPECT_LE(furthest, 1.3);
  EXPECT_GT(moved(Eviction::lru, {}), furthest);
  EXPECT_GT(moved(Eviction::lru, TileShape(16, 1)), 1.5) << "left-looking by columns";
}

TYPED_TEST(MemoryLimits, BelowTheLeastAreRefusedWithTheLeast) {
  using T = TypeParam;
  for (const Case& c : cases) {
    MemoryTileStore store;
    StoredMatrix<T> a(TileDistribution(n, n, c.tile), c.part(), store);  // not filled: reading a tile would throw
    try {
      factorise(c, a, {.bytes = least<T>(c) - 1}, {.workers = 2});
      FAIL();
    } catch (const InvalidArgument& e) {
      EXPECT_EQ(e.argument(), "memory limit");
      EXPECT_THAT(e.what(), HasSubstr("at least " + std::to_string(least<T>(c)) + " bytes, the 3 tiles of one task"));
    }
    EXPECT_THROW(factorise(c, a, {.bytes = least<T>(c), .most_tasks = -1}, {.workers = 2}), InvalidArgument);
    EXPECT_THROW(factorise(c, a, {.bytes = least<T>(c)}, {.workers = 2}), InvalidArgument) << "tiles without contents";
  }
}

TYPED_TEST(MemoryLimits, GiveSolutionsTheBitsOfARunWithoutLimit) {
  using T = TypeParam;
  const auto right_hand_side = [](Index i, Index j) {
    return random::host_uniform(3, 1, static_cast<std::uint64_t>(1000 * i + j)) - 0.5;
  };
  int number = 0;
  for (const Case& c : cases)
    for (const Index columns : {Index{1}, Index{45}}) {
      const Factors kind = c.lu ? Factors::lu : Factors::cholesky;
      const TileMatrix<T> a = factor<T>(c);
      TileMatrix<T> b(TileDistribution(n, columns, c.tile.columns));
      b.fill(right_hand_side);
      solve(kind, a, b, {.workers = 1});
      for (const int percent : {100, 50, 25, 0})
        for (const std::uint64_t seed : {0, 1, 2}) {
          if (!aloni::test::is_in_share(number++)) continue;
          MemoryTileStore left, right;
          StoredMatrix<T> stored_a(a.distribution(), c.part(), left), x(b.distribution(), b.part(), right);
          stored_a.copy_from(a);
          x.fill(right_hand_side);
          const MemoryLimit limit{.bytes = std::max(least<T>(c), stored_a.bytes() * percent / 100),
                                  .eviction = seed == 2 ? Eviction::lru : Eviction::furthest};
          const LimitedReport report =
              solve(kind, stored_a, x, limit, {.workers = seed == 0 ? 1 : 3, .schedule_seed = seed});
          SCOPED_TRACE(std::to_string(columns) + " columns, " + std::to_string(percent) + " %");
          expect_equal(x, b);
          expect_equal(stored_a, a);
          // Each substitution: the factors in, and the right-hand side in and out.
          const Index lower = c.lu ? triangle_bytes(stored_a) : stored_a.bytes();
          EXPECT_EQ(report.compulsory_bytes, 2 * lower + 4 * x.bytes());
          EXPECT_GE(report.swaps.bytes(), report.compulsory_bytes);
          EXPECT_TRUE(percent < 100 || limit.eviction == Eviction::lru ||
                      report.swaps.bytes() <= report.compulsory_bytes * 11 / 10);
          EXPECT_LE(report.slots * least<T>(c) / 3, limit.bytes);
          if (this->HasFailure()) return;
        }
    }
}

TYPED_TEST(MemoryLimits, SolutionsReadTheFactorsOfASingleColumnOnce) {
  using T = TypeParam;
  const Case c;
  const TileMatrix<T> a = factor<T>(c);
  MemoryTileStore left, right;
  StoredMatrix<T> stored_a(a.distribution(), c.part(), left);
  StoredMatrix<T> x(TileDistribution(n, 1, c.tile.columns), TilePart::whole, right);
  stored_a.copy_from(a);
  x.fill([](Index, Index) { return 1; });
  const LimitedReport report = solve(Factors::cholesky, stored_a, x, {.bytes = 2 * least<T>(c)}, {.workers = 1});
  EXPECT_LE(report.swaps.bytes_in, 2 * stored_a.bytes() + 8 * x.bytes());
}

TEST(MemoryLimit, RefusesSystemsThatItCannotSolve) {
  MemoryTileStore left, right;
  StoredMatrix<double> a(TileDistribution(100, 100, 16), TilePart::lower, left);
  StoredMatrix<double> b(TileDistribution(100, 20, 16), TilePart::whole, right);
  constexpr Index slot = 16 * 16 * 8;
  try {
    solve(Factors::cholesky, a, b, {.bytes = 3 * slot - 1});
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.argument(), "memory limit");
    EXPECT_THAT(e.what(), HasSubstr("at least " + std::to_string(3 * slot)));
  }
  StoredMatrix<double> same_store(b.distribution(), TilePart::whole, left);
  EXPECT_THROW(solve(Factors::cholesky, a, same_store, {.bytes = 10 * slot}), InvalidArgument);
  EXPECT_THROW(solve(Factors::lu, a, b, {.bytes = 10 * slot}), InvalidArgument) << "lower tiles only";
  StoredMatrix<double> other_rows(TileDistribution(99, 20, 16), TilePart::whole, right);
  EXPECT_THROW(solve(Factors::cholesky, a, other_rows, {.bytes = 10 * slot}), InvalidArgument);
  EXPECT_THROW(solve(Factors::cholesky, a, b, {.bytes = 10 * slot}), InvalidArgument) << "tiles without contents";
}

TEST(MemoryLimit, OfASmallMatrixIsThatOfItsTiles) {
  MemoryTileStore store;
  StoredMatrix<double> one(TileDistribution(4, 4, 8), TilePart::lower, store);
  one.fill([](Index i, Index j) { return i == j ? 4.0 : 1.0; });
  EXPECT_THROW(cholesky(one, {.bytes = 127}), InvalidArgument);
  const LimitedReport report = cholesky(one, {.bytes = 128}, {.workers = 2});
  EXPECT_EQ(report.swaps.bytes(), 2 * 128);
  EXPECT_EQ(report.slots, 1);
  MemoryTileStore nothing;
  StoredMatrix<double> empty(TileDistribution(0, 0, 8), TilePart::lower, nothing);
  EXPECT_EQ(cholesky(empty, {.bytes = 0}, {.workers = 2}).run.tasks, 0);
}

TEST(MemoryLimit, TilesAreLoadedWhileWorkersCompute) {
  MemoryTileStore store(1e9);
  StoredMatrix<double> a(TileDistribution(n, n, 16), TilePart::lower, store);
  a.fill(element);
  const LimitedReport report = cholesky(a, {.bytes = a.bytes() / 2}, {.workers = 2});
  EXPECT_GT(report.swaps.tiles.prefetches, report.swaps.tiles.loads / 2);
  EXPECT_GT(report.swaps.tiles.hits, report.run.tasks);
}

TEST(MemoryLimit, ErrorsOfTasksEndTheRun) {
  MemoryTileStore store;
  StoredMatrix<double> a(TileDistribution(n, n, 16), TilePart::lower, store);
  for (const int workers : {1, 3})
    for (const Index bytes : {Index{3 * 2048}, a.bytes() / 2}) {
      a.fill([](Index i, Index j) { return i != j ? 0.0 : i == 150 ? -1.0 : 1.0; });
      try {
        cholesky(a, {.bytes = bytes}, {.workers = workers});
        FAIL();
      } catch (const FactorisationError& e) {
        EXPECT_EQ(e.argument(), "tile (9, 9), column 150");
      }
    }
}

/// Each write that can fail: while the matrix is filled, while tasks run, at the end.
TEST(MemoryLimit, AFullDiskEndsTheRunWithItsError) {
  constexpr Index rows = 100;
  Index bytes = 0;
  const auto run = [&](FailingFiles& files, const TemporaryFolder& folder) {
    FileTileStore store(files, folder.path("tiles"));
    StoredMatrix<double> a(TileDistribution(rows, rows, 16), TilePart::lower, store);
    a.fill(element);
    bytes = cholesky(a, {.bytes = 5 * 2048}, {.workers = 2}).swaps.bytes();
  };
  FailingFiles counted;
  run(counted, TemporaryFolder());
  EXPECT_GT(bytes, 0);
  int failures = 0;
  for (int call = 1; call < counted.calls(); call += 7) {
    FailingFiles files;
    const TemporaryFolder folder;
    files.fail_at(call);
    try {
      run(files, folder);
    } catch (const FileError&) {
      ++failures;
      EXPECT_EQ(io::real_file_system().list(folder.path("")), std::vector<std::string>());
    }
  }
  // The number of write-backs depends on the times of the tasks.
  EXPECT_GE(failures, (counted.calls() / 7) * 3 / 4);
}

TEST(TileStores, KeepTheirTiles) {
  const TemporaryFolder folder;
  MemoryTileStore memory;
  FileTileStore file(io::real_file_system(), folder.path("tiles"));
  for (TileStore* store : std::array<TileStore*, 2>{&memory, &file}) {
    const auto bytes = [](std::uint8_t value, std::size_t size) { return std::vector(size, std::byte{value}); };
    store->write({0, 1, 2}, bytes(1, 5));
    store->write({0, 2, 1}, bytes(2, 70'000));
    store->write({0, 3, 1}, bytes(3, 3));
    store->write({0, 2, 1}, bytes(4, 70'000));
    const auto read = [&](const TileId& tile, std::size_t size) {
      std::vector<std::byte> found(size);
      store->read(tile, found);
      return found;
    };
    EXPECT_EQ(read({0, 1, 2}, 5), bytes(1, 5));
    EXPECT_EQ(read({0, 2, 1}, 70'000), bytes(4, 70'000));
    EXPECT_EQ(read({0, 3, 1}, 3), bytes(3, 3));
    EXPECT_THROW(read({0, 9, 9}, 3), InvalidArgument);
  }
  EXPECT_EQ(io::real_file_system().list(folder.path("")).size(), 0U) << "a killed process leaves no file";
  EXPECT_THROW(FileTileStore(io::real_file_system(), folder.path("absent/tiles")), FileError);
  EXPECT_THROW(MemoryTileStore(-1), InvalidArgument);
}

TEST(StoredMatrixOfDoubles, HasTheTilesOfATileMatrix) {
  MemoryTileStore store;
  StoredMatrix<double> a(TileDistribution(50, 50, 16, {2, 2}), TilePart::lower, store, 3);
  a.fill([](Index i, Index j) { return 100 * i + j; });
  TileMatrix<double> expected(a.distribution(), TilePart::lower, 3), found(expected.distribution(), TilePart::lower, 3);
  expected.fill([](Index i, Index j) { return 100 * i + j; });
  a.copy_to(found);
  EXPECT_TRUE(a.has({3, 1}));
  EXPECT_FALSE(a.has({1, 3}));
  EXPECT_FALSE(a.has({2, 1}));
  for (const views::Tile t : {views::Tile{1, 1}, views::Tile{3, 1}, views::Tile{3, 3}})
    EXPECT_TRUE(std::equal(found.tile(t), found.tile(t) + 4, expected.tile(t)));
  EXPECT_EQ(a.bytes(), (16 * 16 + 2 * 16 + 2 * 2) * 8);
  TileMatrix<double> other(TileDistribution(50, 50, 16), TilePart::lower);
  EXPECT_THROW(a.copy_to(other), InvalidArgument);
  EXPECT_THROW(a.copy_from(other), InvalidArgument);
  EXPECT_THROW(StoredMatrix<double>(TileDistribution(4, 5, 2), TilePart::lower, store), InvalidArgument);
  EXPECT_THROW(StoredMatrix<double>(TileDistribution(4, 4, 2), TilePart::lower, store, 1), InvalidArgument);
  EXPECT_THROW(cholesky(a, {.bytes = 1 << 20}), Unsupported) << "several ranks";
}

}  // namespace test_memory_limit
}  // namespace aloni::tasks
