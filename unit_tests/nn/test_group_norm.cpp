// Group and layer normalisation of tensors that are split, against their definition on the whole tensor.
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <map>

namespace aloni::nn::test {
namespace test_group_norm {

using views::ProcessGrid;

constexpr std::uint64_t seed = 41;
constexpr double epsilon = 1e-3;
constexpr Index samples = 3;
const Extents whole{{samples, 3, 5, 4, 6}};  // uneven for most grids, and fewer rows than some have blocks

NetworkDescription one_layer(const Operation& op) {
  NetworkDescription net;
  net.spatial_rank = 3;
  net.input = whole;
  net.input[Dim::sample] = 1;
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"norm", op, {"input"}}};
  return net;
}

std::vector<std::string> grids(int ranks) {
  const std::string p = std::to_string(ranks);
  if (ranks == 1) return {"1"};
  if (ranks == 4) return {"n4", "h4", "d4", "n2h2", "d2w2", "h2", "n2"};
  if (ranks == 6) return {"h6", "n2h3", "d3w2", "n3w2", "w3", "d2"};
  return {"n" + p, "d" + p, "h" + p, "w" + p, "1"};
}

/// The set of elements that `i` shares a mean with.
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
  for (const auto& grid : grids(comm.size())) {
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

TEST(GroupNorm, IsItsDefinitionOnTheWholeTensor) {
  for (const Operation& op : operations()) {
    compare<double>(op, Mode::training, 1e-13);
    compare<float>(op, Mode::training, 1e-5);
  }
}

TEST(GroupNorm, EvaluatesAsItTrains) {
  for (const Operation& op : operations()) compare<double>(op, Mode::evaluation, 1e-13);
}

/// use(network) with the output for integers.
template <class Use>
void with_output_for_integers(const comm::Communicator& comm, const Operation& op, const std::string& grid,
                              const Use& use) {
  Run<float> run(comm, one_layer(op), Strategy::uniform(ProcessGrid::parse(grid)), samples, Values::reals, seed,
                 local::ConvolutionBackend::automatic);
  fill<float>(run.network.input(), run.network.input_box(), whole, Values::integers, seed, 2);
  run.network.forward(run.queue, Mode::training);
  use(run.network);
}

TEST(GroupNorm, GivesTheSameBitsInEverySplitOfIntegers) {
  // Sums of integers and of their squares are exact in double, in any order; what is made of them is the same everywhere.
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  for (const Operation& op : operations()) {
    with_output_for_integers(self, op, "1", [&](const Network<float>& one) {
      for (const auto& grid : grids(comm.size())) {
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

}  // namespace test_group_norm
}  // namespace aloni::nn::test
