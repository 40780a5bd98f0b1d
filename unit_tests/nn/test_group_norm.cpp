// Group and layer normalisation of split tensors against their definition on the whole tensor.
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <map>

namespace aloni::nn::test {
namespace test_group_norm {

using views::ProcessGrid;

constexpr std::uint64_t seed = 41;
constexpr double epsilon = 1e-3;
constexpr Index samples = 3;
const Extents whole{{samples, 3, 5, 4, 6}};  // uneven for most grids, and fewer rows than blocks in some

NetworkDescription one_layer(const Operation& op) {
  NetworkDescription net;
  net.spatial_rank = 3;
  net.input = whole;
  net.input[Dim::sample] = 1;
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"norm", op, {"input"}}};
  return net;
}

/// Grids that leave all channels of a pixel on one rank.
std::vector<std::string> grids(int ranks) {
  const std::string p = std::to_string(ranks);
  if (ranks == 1) return {"1"};
  if (ranks == 4) return {"n4", "h4", "d4", "n2h2", "d2w2", "h2", "n2"};
  if (ranks == 6) return {"h6", "n2h3", "d3w2", "n3w2", "w3", "d2"};
  return {"n" + p, "d" + p, "h" + p, "w" + p, "1"};
}

/// Also grids whose blocks of channels have whole groups, or divide them. 4 blocks of the 6 channels have 2, 2, 1 and 1
/// channels.
std::vector<std::string> grids_and_channels(int ranks) {
  std::vector<std::string> all = grids(ranks);
  if (ranks == 4) all.insert(all.end(), {"c4", "h2c2", "n2c2", "c2"});
  if (ranks == 6) all.insert(all.end(), {"c6", "n2c3", "w3c2", "h2c3", "c3"});
  if (ranks == 2 || ranks == 3) all.push_back("c" + std::to_string(ranks));
  return all;
}

/// The set of elements over which the mean of `i` is taken.
std::vector<Index> set_of(const Operation& op, const std::array<Index, 5>& i) {
  if (const auto* group_norm = std::get_if<GroupNorm>(&op)) {
    return {i[0], i[4] / (whole[Dim::channel] / group_norm->groups)};
  }
  return {i[0], i[1], i[2], i[3]};
}

template <class T>
void compare(const Operation& op, Mode mode, double tolerance) {
  struct Moments {
    double sum = 0, squares = 0, count = 0;
  };
  std::map<std::vector<Index>, Moments> sets;
  const auto x = [](Index position) { return static_cast<double>(value_at<T>(Values::reals, seed, 2, position)); };
  for_each_index(views::whole(whole), whole, [&](const auto& i, Index position) {
    Moments& m = sets[set_of(op, i)];
    m.sum += x(position);
    m.count += 1;
  });
  for_each_index(views::whole(whole), whole, [&](const auto& i, Index position) {
    Moments& m = sets[set_of(op, i)];
    m.squares += std::pow(x(position) - m.sum / m.count, 2);
  });

  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : grids_and_channels(comm.size())) {
    SCOPED_TRACE(std::string(kind(op)) + " on grid " + grid);
    Run<T> run(comm, one_layer(op), Strategy::uniform(ProcessGrid::parse(grid)), samples, Values::reals, seed,
               local::ConvolutionBackend::automatic);
    const Box box = run.network.output_box();
    fill<T>(run.network.input(), run.network.input_box(), whole, Values::reals, seed, 2);
    run.network.forward(run.queue, mode);
    const auto y = on_host(run.network.output());
    const bool affine = run.parameters.size() > 0;
    EXPECT_EQ(run.parameters.size(), affine ? 2 * whole[Dim::channel] : 0);
    for_each_index(box, whole, [&](const auto& i, Index position) {
      std::array<Index, 5> global;
      for (int d = 0; d < 5; ++d) global[d] = box.lo[d] + i[d];
      const Moments& m = sets.at(set_of(op, global));
      const double normal = (x(position) - m.sum / m.count) / std::sqrt(m.squares / m.count + epsilon);
      const auto parameter = [&](Index p) { return static_cast<double>(value_at<T>(Values::reals, seed, 1, p)); };
      const double expected =
          affine ? normal * parameter(global[4]) + parameter(whole[Dim::channel] + global[4]) : normal;
      ASSERT_NEAR(y(i[0], i[1], i[2], i[3], i[4]), expected, tolerance);
    });
  }
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all{GroupNorm{1, epsilon}, GroupNorm{2, epsilon},
                                          GroupNorm{6, epsilon}, GroupNorm{3, epsilon, false},
                                          LayerNorm{epsilon},    LayerNorm{epsilon, false}};
  return all;
}

TEST(GroupNorm, EqualsItsDefinitionOnTheWholeTensor) {
  for (const Operation& op : operations()) {
    compare<double>(op, Mode::training, 1e-13);
    compare<float>(op, Mode::training, 1e-5);
  }
}

TEST(GroupNorm, EvaluatesLikeItTrains) {
  for (const Operation& op : operations()) compare<double>(op, Mode::evaluation, 1e-13);
}

/// Calls use(network) after a forward pass on integers.
template <class Use>
void with_output_for_integers(const comm::Communicator& comm, const Operation& op, const std::string& grid,
                              const Use& use) {
  Run<float> run(comm, one_layer(op), Strategy::uniform(ProcessGrid::parse(grid)), samples, Values::reals, seed,
                 local::ConvolutionBackend::automatic);
  fill<float>(run.network.input(), run.network.input_box(), whole, Values::integers, seed, 2);
  run.network.forward(run.queue, Mode::training);
  use(run.network);
}

TEST(GroupNorm, GivesTheSameBitsOnIntegersInEverySplit) {
  // Sums of integers and of their squares are exact in double in any order. All later arithmetic is the same on every
  // rank.
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  for (const Operation& op : operations()) {
    with_output_for_integers(self, op, "1", [&](const Network<float>& one) {
      const bool is_layer_norm = std::holds_alternative<LayerNorm>(op);  // means divide, and the sums that follow round
      for (const auto& grid : is_layer_norm ? grids(comm.size()) : grids_and_channels(comm.size())) {
        with_output_for_integers(comm, op, grid, [&](const Network<float>& many) {
          EXPECT_EQ(difference(many.output(), many.output_box(), one.output()), 0) << kind(op) << " on grid " << grid;
        });
      }
    });
  }
}

TEST(LayerNorm, GivesTheSameBitsInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : grids(comm.size())) {
    expect_split_equals_unsplit<double>(comm, one_layer(LayerNorm{epsilon, false}),
                                        Strategy::uniform(ProcessGrid::parse(grid)), samples, Values::reals, seed, 0.0);
    expect_split_equals_unsplit<float>(comm, one_layer(LayerNorm{epsilon, false}),
                                       Strategy::uniform(ProcessGrid::parse(grid)), samples, Values::reals, seed, 0.0);
  }
}

TEST(LayerNorm, KeepsItsDigitsFarFromZeroWithSplitChannels) {
  // The mean of x² minus the square of the mean would lose all digits.
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : grids_and_channels(comm.size())) {
    SCOPED_TRACE(grid);
    const auto output_around = [&](double mean) {
      nn::test::Run<double> run(comm, one_layer(LayerNorm{epsilon, false}), Strategy::uniform(ProcessGrid::parse(grid)),
                                samples, Values::reals, seed, local::ConvolutionBackend::automatic);
      fill<double>(run.network.input(), run.network.input_box(), whole, Values::integers, seed, 2);
      const auto x = on_host(run.network.input());
      for_each_index(run.network.input_box(), whole,
                     [&](const auto& i, Index) { x(i[0], i[1], i[2], i[3], i[4]) += mean; });
      Kokkos::deep_copy(run.network.input(),
                        Kokkos::create_mirror_view_and_copy(typename Kokkos::DefaultExecutionSpace::memory_space{}, x));
      run.network.forward(run.queue, Mode::training);
      return on_host(run.network.output());
    };
    const auto near = output_around(0), far = output_around(1e9);
    double largest = 0;
    for (std::size_t n = 0; n < near.extent(0); ++n)
      for (std::size_t d = 0; d < near.extent(1); ++d)
        for (std::size_t h = 0; h < near.extent(2); ++h)
          for (std::size_t w = 0; w < near.extent(3); ++w)
            for (std::size_t c = 0; c < near.extent(4); ++c)
              largest = std::max(largest, std::abs(near(n, d, h, w, c) - far(n, d, h, w, c)));
    EXPECT_LT(largest, 1e-6);
  }
}

}  // namespace test_group_norm
}  // namespace aloni::nn::test
