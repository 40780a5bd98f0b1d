// Statistics over a part of the mini-batch: each part is normalised as if it were a mini-batch of its own.
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_batch_norm_scopes {

using views::ProcessGrid;

constexpr std::uint64_t seed = 31;

NetworkDescription batch_norm(const Extents& input, const BatchNorm& op) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = input;
  net.input[Dim::sample] = 1;
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"norm", op, {"input"}}};
  return net;
}

/// A step with the values that the whole tensor has in `box`.
void step(Run<double>& run, const Box& box, const Extents& whole) {
  fill<double>(run.network.input(), box, whole, Values::reals, seed, 2);
  run.network.forward(run.queue, Mode::training);
  fill<double>(run.network.output_gradient(), box, whole, Values::reals, seed, 3);
  run.network.backward(run.queue);
}

/// The part of the mini-batch whose statistics `rank` uses.
Box part_of(const views::Distribution& d, int rank, const BatchNorm& op) {
  Box part = d.owned(rank);
  if (op.scope == StatisticsScope::spatial) {
    for (Dim dim : {Dim::depth, Dim::height, Dim::width}) part.set(dim, 0, d.extents()[dim]);
  }
  if (op.scope == StatisticsScope::neighbours) {
    const int first = rank / op.ranks * op.ranks;
    for (int r = first; r < std::min(first + op.ranks, d.ranks()); ++r) part = hull(part, d.owned(r));
  }
  return part;
}

/// `part` relative to the lower corner of `origin`.
Box relative(Box part, const Box& origin) {
  for (int i = 0; i < views::num_dims; ++i) {
    part.lo[i] -= origin.lo[i];
    part.hi[i] -= origin.lo[i];
  }
  return part;
}

void compare(const std::string& grid, StatisticsScope scope, int ranks = 1) {
  const BatchNorm op{scope, 0.1, 1e-3, ranks};
  SCOPED_TRACE("grid " + grid + ", scope " + std::to_string(static_cast<int>(scope)) + ", ranks " +
               std::to_string(ranks));
  const auto comm = aloni::test::make_communicator();
  const Extents whole{{7, 1, 9, 5, 3}};  // uneven for every rank count above one
  Run<double> split(comm, batch_norm(whole, op), Strategy::uniform(ProcessGrid::parse(grid)), 7, Values::reals, seed,
                    local::ConvolutionBackend::automatic);
  const views::Distribution& distribution = split.network.input_distribution();
  const Box owned = distribution.owned(comm.rank());
  step(split, owned, whole);
  split.network.reduce_gradients(split.queue);

  const Box part = part_of(distribution, comm.rank(), op);
  ASSERT_FALSE(part.empty()) << "choose a grid without empty boxes";
  const auto self = comm.split(comm.rank(), 0);
  Run<double> alone(self, batch_norm(views::extents_of(part), op), Strategy::uniform({}), part.extent(Dim::sample),
                    Values::reals, seed, local::ConvolutionBackend::automatic);
  step(alone, part, whole);

  const Box mine = relative(owned, part);
  EXPECT_LE(difference(split.network.output(), mine, alone.network.output()), 1e-12) << "output";
  EXPECT_LE(difference(split.network.input_gradient(), mine, alone.network.input_gradient()), 1e-12)
      << "input gradient";

  // The gradients of gamma and beta are the sums over all parts, each part once.
  const std::vector<Dim> spatial{Dim::depth, Dim::height, Dim::width};
  const bool counts =
      scope == StatisticsScope::local ||
      (scope == StatisticsScope::spatial && distribution.group(comm.rank(), spatial).front() == comm.rank()) ||
      (scope == StatisticsScope::neighbours && comm.rank() % ranks == 0);
  const auto gradients = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, split.parameters.gradients());
  const auto own = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, alone.parameters.gradients());
  for (Index i = 0; i < split.parameters.size(); ++i) {
    const double sum = comm.all_reduce(counts ? own(i) : 0.0, comm::Reduction::sum);
    EXPECT_NEAR(gradients(i), sum, 1e-12 * (1 + std::abs(sum))) << "gradient of parameter " << i;
  }

  // Running statistics are those of the part, until they are averaged.
  const auto running = [](Run<double>& run) {
    const auto& s = run.parameters.running_statistics(0);
    return std::pair{Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.mean),
                     Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.variance)};
  };
  const auto [mean, variance] = running(split);
  const auto [own_mean, own_variance] = running(alone);
  for (std::size_t c = 0; c < mean.extent(0); ++c) {
    EXPECT_NEAR(mean(c), own_mean(c), 1e-12);
    EXPECT_NEAR(variance(c), own_variance(c), 1e-12);
  }
  // Copies of the host's views: in a build for the host these are the network's own memory.
  std::vector<double> before{mean.data(), mean.data() + mean.extent(0)};
  before.insert(before.end(), variance.data(), variance.data() + variance.extent(0));
  comm.all_reduce(std::span<double>(before), comm::Reduction::sum);
  split.network.synchronise_statistics(split.queue);
  const auto [averaged_mean, averaged_variance] = running(split);
  for (std::size_t c = 0; c < mean.extent(0); ++c) {
    EXPECT_NEAR(averaged_mean(c), before[c] / comm.size(), 1e-12);
    EXPECT_NEAR(averaged_variance(c), before[mean.extent(0) + c] / comm.size(), 1e-12);
  }
}

std::vector<std::string> grids(int ranks) {
  const std::string p = std::to_string(ranks);
  if (ranks == 1) return {"1"};
  if (ranks == 4) return {"n4", "h4", "n2h2", "h2w2", "n2w2"};
  if (ranks == 6) return {"n6", "n2h3", "n3w2", "h3w2"};
  return {"n" + p, "h" + p, "w" + p};
}

TEST(BatchNormScopes, LocalNormalisesEachRanksBoxByItself) {
  for (const auto& grid : grids(aloni::test::make_communicator().size())) compare(grid, StatisticsScope::local);
}

TEST(BatchNormScopes, SpatialNormalisesEachSetOfSamplesByItself) {
  for (const auto& grid : grids(aloni::test::make_communicator().size())) compare(grid, StatisticsScope::spatial);
}

TEST(BatchNormScopes, NeighboursNormaliseTheirBoxesTogether) {
  const int size = aloni::test::make_communicator().size();
  for (const char* letter : {"n", "h", "w"}) {
    for (int ranks : {1, 2, 3, size}) {
      if (size > 5 && *letter == 'w') continue;  // more ranks than columns
      compare(letter + std::to_string(size), StatisticsScope::neighbours, ranks);
    }
  }
}

}  // namespace test_batch_norm_scopes
}  // namespace aloni::nn::test
