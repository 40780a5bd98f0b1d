// Ranges of indices are computed when a network is made, never in a step. The linker redirects calls of the functions
// that compute them, between files of the library, to the counters below (--wrap=…, CMakeLists.txt). Where it cannot,
// this test is skipped.
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/halo/range_map.hpp>
#include <aloni/halo/stencil.hpp>
#include <aloni/halo/transfer_plan.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/views/distribution.hpp>

#include <array>
#include <string>
#include <vector>

namespace {

using aloni::halo::BoundaryConditions;
using aloni::halo::NeededBox;
using aloni::halo::RangeMap;
using aloni::halo::Stencil;
using aloni::halo::TransferPlan;
using aloni::nn::LayerPlan;
using aloni::views::Box;
using aloni::views::Distribution;
using aloni::views::Extents;

struct Counter {
  const char* name;
  int calls;
};
std::array<Counter, 11> counters{{{"Distribution::owned", 0},
                                  {"difference", 0},
                                  {"Stencil::input_box", 0},
                                  {"Stencil::output_box", 0},
                                  {"RangeMap::input_box", 0},
                                  {"plan_halo", 0},
                                  {"plan_redistribution", 0},
                                  {"LayerPlan::input_needed", 0},
                                  {"LayerPlan::output_work", 0},
                                  {"LayerPlan::input_of", 0},
                                  {"LayerPlan::output_gradient_of", 0}}};

}  // namespace

#ifdef ALONI_TEST_WRAPS
// A member function is called like a function whose first argument is the object. The mangled name behind --wrap is
// not readable, hence the labels.

Box real_distribution_owned(const Distribution*, int) __asm__("__real__ZNK5aloni5views12Distribution5ownedEi");
Box counted_distribution_owned(const Distribution*, int) __asm__("__wrap__ZNK5aloni5views12Distribution5ownedEi");
Box counted_distribution_owned(const Distribution* self, int rank) {
  ++counters[0].calls;
  return real_distribution_owned(self, rank);
}

std::vector<Box> real_free_difference(const Box&,
                                      const Box&) __asm__("__real__ZN5aloni5views10differenceERKNS0_3BoxES3_");
std::vector<Box> counted_free_difference(const Box&,
                                         const Box&) __asm__("__wrap__ZN5aloni5views10differenceERKNS0_3BoxES3_");
std::vector<Box> counted_free_difference(const Box& outer, const Box& inner) {
  ++counters[1].calls;
  return real_free_difference(outer, inner);
}

Box real_stencil_input_box(const Stencil*,
                           const Box&) __asm__("__real__ZNK5aloni4halo7Stencil9input_boxERKNS_5views3BoxE");
Box counted_stencil_input_box(const Stencil*,
                              const Box&) __asm__("__wrap__ZNK5aloni4halo7Stencil9input_boxERKNS_5views3BoxE");
Box counted_stencil_input_box(const Stencil* self, const Box& output) {
  ++counters[2].calls;
  return real_stencil_input_box(self, output);
}

Box real_stencil_output_box(const Stencil*, const Box&, const Extents&) __asm__(
    "__real__ZNK5aloni4halo7Stencil10output_boxERKNS_5views3BoxERKNS2_7ExtentsE");
Box counted_stencil_output_box(const Stencil*, const Box&, const Extents&) __asm__(
    "__wrap__ZNK5aloni4halo7Stencil10output_boxERKNS_5views3BoxERKNS2_7ExtentsE");
Box counted_stencil_output_box(const Stencil* self, const Box& input, const Extents& outputs) {
  ++counters[3].calls;
  return real_stencil_output_box(self, input, outputs);
}

Box real_rangemap_input_box(const RangeMap*,
                            const Box&) __asm__("__real__ZNK5aloni4halo8RangeMap9input_boxERKNS_5views3BoxE");
Box counted_rangemap_input_box(const RangeMap*,
                               const Box&) __asm__("__wrap__ZNK5aloni4halo8RangeMap9input_boxERKNS_5views3BoxE");
Box counted_rangemap_input_box(const RangeMap* self, const Box& output) {
  ++counters[4].calls;
  return real_rangemap_input_box(self, output);
}

// clang-format cannot break these four declarations.
// clang-format off
TransferPlan real_free_plan_halo(const Distribution&, const NeededBox&, const BoundaryConditions&, int,
                                 const std::vector<int>&) __asm__(
    "__real__ZN5aloni4halo9plan_haloERKNS_5views12DistributionERKSt8functionIFNS1_3BoxEiEERKNS0_"
    "18BoundaryConditionsEiRKSt6vectorIiSaIiEE");
TransferPlan counted_free_plan_halo(const Distribution&, const NeededBox&, const BoundaryConditions&, int,
                                    const std::vector<int>&) __asm__(
    "__wrap__ZN5aloni4halo9plan_haloERKNS_5views12DistributionERKSt8functionIFNS1_3BoxEiEERKNS0_"
    "18BoundaryConditionsEiRKSt6vectorIiSaIiEE");
// clang-format on
TransferPlan counted_free_plan_halo(const Distribution& distribution, const NeededBox& needed,
                                    const BoundaryConditions& boundaries, int rank, const std::vector<int>& readers) {
  ++counters[5].calls;
  return real_free_plan_halo(distribution, needed, boundaries, rank, readers);
}

// clang-format off
TransferPlan real_free_plan_redistribution(const Distribution&, const Distribution&, const NeededBox&,
                                           const BoundaryConditions&, int, const std::vector<int>&) __asm__(
    "__real__ZN5aloni4halo19plan_redistributionERKNS_5views12DistributionES4_RKSt8functionIFNS1_3BoxEiEERKNS0_"
    "18BoundaryConditionsEiRKSt6vectorIiSaIiEE");
TransferPlan counted_free_plan_redistribution(const Distribution&, const Distribution&, const NeededBox&,
                                              const BoundaryConditions&, int, const std::vector<int>&) __asm__(
    "__wrap__ZN5aloni4halo19plan_redistributionERKNS_5views12DistributionES4_RKSt8functionIFNS1_3BoxEiEERKNS0_"
    "18BoundaryConditionsEiRKSt6vectorIiSaIiEE");
// clang-format on
TransferPlan counted_free_plan_redistribution(const Distribution& source, const Distribution& destination,
                                              const NeededBox& needed, const BoundaryConditions& boundaries, int rank,
                                              const std::vector<int>& readers) {
  ++counters[6].calls;
  return real_free_plan_redistribution(source, destination, needed, boundaries, rank, readers);
}

Box real_layerplan_input_needed(const LayerPlan*, int) __asm__("__real__ZNK5aloni2nn9LayerPlan12input_neededEi");
Box counted_layerplan_input_needed(const LayerPlan*, int) __asm__("__wrap__ZNK5aloni2nn9LayerPlan12input_neededEi");
Box counted_layerplan_input_needed(const LayerPlan* self, int rank) {
  ++counters[7].calls;
  return real_layerplan_input_needed(self, rank);
}

Box real_layerplan_output_work(const LayerPlan*, int) __asm__("__real__ZNK5aloni2nn9LayerPlan11output_workEi");
Box counted_layerplan_output_work(const LayerPlan*, int) __asm__("__wrap__ZNK5aloni2nn9LayerPlan11output_workEi");
Box counted_layerplan_output_work(const LayerPlan* self, int rank) {
  ++counters[8].calls;
  return real_layerplan_output_work(self, rank);
}

Box real_layerplan_input_of(const LayerPlan*, const Box&,
                            int) __asm__("__real__ZNK5aloni2nn9LayerPlan8input_ofERKNS_5views3BoxEi");
Box counted_layerplan_input_of(const LayerPlan*, const Box&,
                               int) __asm__("__wrap__ZNK5aloni2nn9LayerPlan8input_ofERKNS_5views3BoxEi");
Box counted_layerplan_input_of(const LayerPlan* self, const Box& outputs, int rank) {
  ++counters[9].calls;
  return real_layerplan_input_of(self, outputs, rank);
}

Box real_layerplan_output_gradient_of(const LayerPlan*, const Box&, int) __asm__(
    "__real__ZNK5aloni2nn9LayerPlan18output_gradient_ofERKNS_5views3BoxEi");
Box counted_layerplan_output_gradient_of(const LayerPlan*, const Box&, int) __asm__(
    "__wrap__ZNK5aloni2nn9LayerPlan18output_gradient_ofERKNS_5views3BoxEi");
Box counted_layerplan_output_gradient_of(const LayerPlan* self, const Box& inputs, int rank) {
  ++counters[10].calls;
  return real_layerplan_output_gradient_of(self, inputs, rank);
}
#endif

namespace aloni::nn::test {
namespace {

/// Networks in which layers move data in every way: ghosts in place, faces, gathered channels, partial sums,
/// redistributions, adjoints.
NetworkDescription network() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {12, 12}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"filters", Convolution{4, square_window(2, 3, 1, 1)}, {"conv"}},
                {"channels", TransposedConvolution{4, square_window(2, 3, 2, 1)}, {"filters"}},
                {"pool", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"channels"}},
                {"norm", BatchNorm{}, {"pool"}},
                {"sum", Add{}, {"norm", "pool"}},
                {"up", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"sum"}},
                {"flatten", Flatten{}, {"up"}},
                {"dense", Dense{3}, {"flatten"}}};
  return net;
}

TEST(StepArithmetic, RunsOnlyWhileTheNetworkIsMade) {
#ifndef ALONI_TEST_WRAPS
  GTEST_SKIP() << "this linker, or a shared library, does not redirect calls to counters";
#endif
  const auto comm = aloni::test::make_communicator();
  for (const char* rest : {"h2", "w2  blocking"}) {
    SCOPED_TRACE(rest);
    for (Counter& c : counters) c.calls = 0;
    const auto strategy = Strategy::parse("filters f2\nchannels c2\n* " + std::string(rest), "test");
    nn::test::Run<float> run(comm, network(), strategy, 4, Values::reals, 1, local::ConvolutionBackend::automatic);
    for (Counter& c : counters) {
      EXPECT_GT(c.calls, 0) << c.name << " is not seen";
      c.calls = 0;
    }
    for (int i = 0; i < 3; ++i) {
      run.network.train_step(run.queue);
      run.network.evaluate(run.queue);
      run.network.backward(run.queue);
      run.network.reduce_gradients(run.queue);
    }
    for (const Counter& c : counters) EXPECT_EQ(c.calls, 0) << c.name << " is called in a step";
  }
}

}  // namespace
}  // namespace aloni::nn::test
