// Networks that read a tensor of the caller where it lies, and redistributions into and out of networks.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/halo/redistribution.hpp>

#include <gmock/gmock.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test {
namespace test_adopted_input {

using local::ConvolutionBackend;
using views::DistributedView;
using views::Distribution;
using views::GhostWidths;
using views::Side;
using Exec = Kokkos::DefaultExecutionSpace;
using Mem = Exec::memory_space;

/// Where the values of the caller lie.
enum class Memory { dense, layout_left, channels_first };

template <class T, int R>
DistributedView<T, R> make_view(Memory memory, const Distribution& d, int rank, const GhostWidths& ghosts) {
  if (memory == Memory::dense) return DistributedView<T, R>(Exec{}, "field", d, rank, ghosts);
  const Box box = grow(d.owned(rank), ghosts);
  const auto n = [&](Dim dim) { return static_cast<std::size_t>(box.extent(dim)); };
  using Data = typename DistributedView<T, R>::data_type;
  constexpr auto axes = DistributedView<T, R>::axes;
  if (memory == Memory::layout_left) {
    using View = Kokkos::View<Data, Kokkos::LayoutLeft, Mem>;
    if constexpr (R == 1)
      return DistributedView<T, R>::wrap(View("f", n(axes[0]), n(axes[1]), n(axes[2])), d, rank, ghosts);
    if constexpr (R == 2)
      return DistributedView<T, R>::wrap(View("f", n(axes[0]), n(axes[1]), n(axes[2]), n(axes[3])), d, rank, ghosts);
    if constexpr (R == 3)
      return DistributedView<T, R>::wrap(View("f", n(axes[0]), n(axes[1]), n(axes[2]), n(axes[3]), n(axes[4])), d, rank,
                                         ghosts);
  }
  using View = Kokkos::View<Data, Kokkos::LayoutRight, Mem>;
  using enum Dim;
  if constexpr (R == 1)
    return DistributedView<T, R>::wrap_permuted(View("f", n(sample), n(channel), n(width)), {sample, channel, width}, d,
                                                rank, ghosts);
  if constexpr (R == 2)
    return DistributedView<T, R>::wrap_permuted(View("f", n(sample), n(channel), n(height), n(width)),
                                                {sample, channel, height, width}, d, rank, ghosts);
  if constexpr (R == 3)
    return DistributedView<T, R>::wrap_permuted(View("f", n(sample), n(channel), n(depth), n(height), n(width)),
                                                {sample, channel, depth, height, width}, d, rank, ghosts);
}

template <class T, int R>
DistributedView<T, R> random_view(Dice& dice, const Distribution& d, int rank) {
  GhostWidths ghosts;
  for (const Dim dim : DistributedView<T, R>::axes)
    if (dim != Dim::sample) ghosts(dim, Side::low) = dice(0, 2), ghosts(dim, Side::high) = dice(0, 2);
  if (dice(0, 2) == 0) ghosts = {};
  return make_view<T, R>(static_cast<Memory>(dice(0, 2)), d, rank, ghosts);
}

/// Values that no tensor of a test has.
template <class T>
constexpr T untouched = T(-77);

template <class T, int R>
void fill_view(const DistributedView<T, R>& view, std::uint64_t seed, std::uint64_t stream) {
  Kokkos::deep_copy(view.with_ghosts_unchecked(), untouched<T>);
  fill<T>(view.local_owned(), view.owned_box(), view.distribution().extents(), Values::integers, seed, stream);
}

/// Whether the owned values are those of fill_view(), and the ghosts untouched.
template <class T, int R>
bool is_unchanged(const DistributedView<T, R>& view, std::uint64_t seed, std::uint64_t stream) {
  const auto expected = make_view<T, R>(Memory::dense, view.distribution(), view.rank(), view.ghosts());
  fill_view(expected, seed, stream);
  const auto a = on_host(view.local_unchecked()), b = on_host(expected.local_unchecked());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a.data()[i] != b.data()[i]) return false;
  return true;
}

Extents of_batch(Extents input, Index samples) {
  input[Dim::sample] = samples;
  return input;
}

/// The network unsplit with its own input, and split over all ranks with the caller's tensor: equal bits.
template <class T, int R>
void compare(const comm::Communicator& comm, Dice& dice, const NetworkDescription& net, std::uint64_t seed) {
  const Index samples = dice(1, 5);
  const auto splits = splits_for(comm.size(), R);
  const Strategy strategy =
      dice(0, 1) == 0 ? random_uniform_strategy(dice, net, splits) : random_strategy(dice, net, splits);
  Distribution d = random_distribution(dice, of_batch(net.input, samples), R, comm.size());
  if (dice(0, 4) == 0) d = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples).input;
  const auto view = random_view<T, R>(dice, d, comm.rank());
  SCOPED_TRACE("strategy " + to_string(strategy) + ", input " + to_string(d));
  const auto self = comm.split(comm.rank(), 0);
  Run<T> one(self, net, Strategy::uniform({}), samples, Values::integers, seed, ConvolutionBackend::automatic);
  Run<T> many(comm, net, strategy, samples, Values::integers, seed, ConvolutionBackend::automatic,
              seed % 2 == 0 ? Weights::split : Weights::whole, seed % 3 == 0 ? seed : 0, std::nullopt, view);
  EXPECT_EQ(many.network.input_distribution(), d);
  EXPECT_EQ(many.network.input_box(), d.owned(comm.rank()));
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (Run<T>* run : {&one, &many}) run->fill_parameters(step);
    one.step(step);
    fill_view(view, seed, 10 * step + 2);
    many.network.forward(many.queue, Mode::training);
    fill<T>(many.network.output_gradient(), many.network.output_box(), many.network.output_distribution().extents(),
            Values::integers, seed, 10 * step + 3);
    many.network.backward(many.queue);
    many.network.reduce_gradients(many.queue);
    EXPECT_EQ(difference(many.network.output(), many.network.output_box(), one.network.output()), 0) << "output";
    EXPECT_EQ(difference(many.network.input(), many.network.input_box(), one.network.input()), 0) << "input";
    EXPECT_EQ(difference(many.network.input_gradient(), many.network.input_box(), one.network.input_gradient()), 0)
        << "input gradient";
    const auto gathered = many.parameters.gather_gradients(many.queue),
               alone = one.parameters.gather_gradients(one.queue);
    for (std::size_t k = 0; k < alone.extent(0); ++k) ASSERT_EQ(gathered(k), alone(k)) << "gradient " << k;
    EXPECT_TRUE(is_unchanged(view, seed, 10 * step + 2));
    many.network.forward(many.queue, Mode::evaluation);
    one.network.forward(one.queue, Mode::evaluation);
    EXPECT_EQ(difference(many.network.output(), many.network.output_box(), one.network.output()), 0) << "evaluation";
    EXPECT_TRUE(is_unchanged(view, seed, 10 * step + 2));
  }
}

template <class T>
void compare_random_networks(std::uint64_t first_seed, int count) {
  const auto comm = aloni::test::make_communicator();
  for (std::uint64_t seed = first_seed; seed < first_seed + aloni::test::random_cases(count); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const NetworkDescription net = random_network(dice, Kinds::exact);
    if (net.spatial_rank == 1) compare<T, 1>(comm, dice, net, seed);
    if (net.spatial_rank == 2) compare<T, 2>(comm, dice, net, seed);
    if (net.spatial_rank == 3) compare<T, 3>(comm, dice, net, seed);
    if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) != 0) return;
  }
}

TEST(AdoptedInput, GivesTheBitsOfAnOwnInputInFloat) { compare_random_networks<float>(100, 60); }
TEST(AdoptedInput, GivesTheBitsOfAnOwnInputInDouble) { compare_random_networks<double>(400, 30); }

NetworkDescription one_convolution() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {13, 9}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}}, {"relu", Relu{}, {"conv"}}};
  return net;
}

TEST(AdoptedInput, IsReadInPlaceOrRedistributedWithoutACopyBefore) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const auto net = one_convolution();
  const Index samples = 2 * comm.size();
  const auto by_samples =
      Distribution::block(of_batch(net.input, samples), ProcessGrid{.blocks = {comm.size(), 1, 1, 1, 1}}, comm.size());
  const Strategy strategy = Strategy::uniform(by_samples.grid());
  const DistributedView<float, 2> view(queue.space(), "field", by_samples, comm.rank());
  Parameters<float> parameters(comm, queue, net, 1);
  const NetworkOptions inference{.inference = true};
  Network<float> own(comm, queue, net, strategy, samples, parameters, inference);
  Network<float> adopting(comm, queue, net, strategy, samples, parameters, inference, view);
  EXPECT_EQ(adopting.input().data(), view.owned().data());
  const Index bytes = by_samples.owned(comm.rank()).size() * static_cast<Index>(sizeof(float));
  EXPECT_EQ(adopting.planned_bytes(), own.planned_bytes() - bytes);
  for (Network<float>* network : {&own, &adopting}) {
    fill<float>(network->input(), network->input_box(), by_samples.extents(), Values::integers, 5, 2);
    network->forward(queue, Mode::evaluation);
  }
  const auto a = on_host(own.output()), b = on_host(adopting.output());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.data()[i], b.data()[i]);
}

/// Throws the error of all ranks.
template <class View>
void adopt(const comm::Communicator& comm, const View& view) {
  const Queue<> queue;
  const auto net = one_convolution();
  Parameters<float> parameters(comm, queue, net, 1);
  Network<float> network(comm, queue, net, Strategy::uniform({}), 2, parameters, {}, view);
}

TEST(AdoptedInput, ThatIsWrongOnOneRankThrowsOnAll) {
  const auto comm = aloni::test::make_communicator();
  const auto text_of = [&](const Distribution& d, int rank) -> std::string {
    try {
      adopt(comm, DistributedView<float, 2>(Exec{}, "field", d, rank));
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no error";
  };
  const ProcessGrid rows{.blocks = {1, 1, comm.size(), 1, 1}};
  const auto even = Distribution::block(of_batch(one_convolution().input, 2), rows, comm.size());
  EXPECT_EQ(text_of(even, comm.rank()), "no error");
  EXPECT_THROW(adopt(comm, DistributedView<float, 2>()), InvalidArgument);
  const auto large = Distribution::block(views::make_extents(2, {13, 8}, 3), rows, comm.size());
  EXPECT_THAT(text_of(large, comm.rank()), testing::HasSubstr("adopted input's extents"));
  if (comm.size() == 1) return;
  EXPECT_THAT(text_of(even, 0), testing::HasSubstr("made for other ranks"));
  EXPECT_THAT(text_of(Distribution::block(even.extents(), {}, 1), 0), testing::HasSubstr("made for other ranks"));
  std::vector<Index> sizes(static_cast<std::size_t>(comm.size()), 0);
  sizes[0] = 13;
  const auto other = comm.rank() == 1 ? even.with_blocks(Dim::height, sizes) : even;
  EXPECT_THAT(text_of(other, comm.rank()), testing::HasSubstr("adopted input = "));
  EXPECT_EQ(text_of(even, comm.rank()), "no error");  // the communicator stays usable
}

/// Values of the caller, through a network and back.
void move_in_and_out() {
  const auto comm = aloni::test::make_communicator();
  for (std::uint64_t seed = 800; seed < 800 + static_cast<std::uint64_t>(aloni::test::random_cases(20)); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    NetworkDescription net = random_network(dice, Kinds::exact);
    if (net.spatial_rank != 2) continue;
    const Index samples = dice(1, 4);
    const Strategy strategy = random_strategy(dice, net, splits_for(comm.size(), 2));
    const auto self = comm.split(comm.rank(), 0);
    Run<float> one(self, net, Strategy::uniform({}), samples, Values::integers, seed, ConvolutionBackend::automatic);
    Run<float> many(comm, net, strategy, samples, Values::integers, seed, ConvolutionBackend::automatic);
    const auto distribution = [&](const Distribution& like) {
      return random_distribution(dice, like.extents(), 2, comm.size());
    };
    const auto x = random_view<float, 2>(dice, distribution(many.network.input_distribution()), comm.rank());
    const auto y = random_view<float, 2>(dice, distribution(many.network.output_distribution()), comm.rank());
    const halo::Redistribution<> in(comm, many.queue, x, many.network.input_field());
    const halo::Redistribution<> out(comm, many.queue, many.network.output_field(), y);
    one.step();
    fill_view(x, seed, 2);
    in.run(many.queue);
    many.network.forward(many.queue, Mode::training);
    out.run(many.queue);
    EXPECT_EQ(difference(y.local_owned(), y.owned_box(), one.network.output()), 0);
    EXPECT_TRUE(is_unchanged(x, seed, 2));
    if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) != 0) return;
  }
}

TEST(NetworkField, IsTheEndOfARedistribution) { move_in_and_out(); }

TEST(NetworkField, OfBfloat16IsUnsupported) {
  using Exec = execution_space_t<comm::bfloat16>;
  const auto comm = aloni::test::make_communicator();
  const Queue<Exec> queue;
  const auto net = one_convolution();
  Parameters<float, Exec> parameters(comm, queue, net, 1);
  const Network<comm::bfloat16, Exec> network(comm, queue, net, Strategy::uniform({}), 2, parameters,
                                              {.backend = ConvolutionBackend::reference});
  EXPECT_THROW(network.input_field(), Unsupported);
  EXPECT_THROW(network.output_field(), Unsupported);
}

}  // namespace test_adopted_input
}  // namespace aloni::nn::test
