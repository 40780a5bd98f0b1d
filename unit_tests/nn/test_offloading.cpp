// Plans that keep activations in host memory between the forward and the backward pass: they need less memory of the
// device, the copies have time, and verify() refuses plans with a fault.
#include "plan_faults.hpp"
#include "random_network.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace test_offloading {

using namespace aloni;
using namespace aloni::nn;
using namespace aloni::nn::test;

StepPlan planned(const NetworkDescription& net, Index samples, const StepOptions& options,
                 StepKind kind = StepKind::training) {
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, samples);
  StepPlan plan = plan_step(net, layers, 0, kind, {}, options);
  const auto fault = verify(layers, {{plan}});
  EXPECT_FALSE(fault) << to_string(*fault);
  return plan;
}

const OffloadWork* copy_of(const PlanNode& node) { return std::get_if<OffloadWork>(&node.work); }

TEST(Offloading, PatternsSelectLayers) {
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  const Offloading layers = offloaded_layers(net, "conv1,*2");
  EXPECT_EQ(layers.front(), find_layer(net, "conv1"));
  EXPECT_TRUE(std::ranges::is_sorted(layers));
  EXPECT_NE(std::ranges::find(layers, find_layer(net, "pool2")), layers.end());
  EXPECT_EQ(std::ranges::find(layers, find_layer(net, "pool1")), layers.end());
  EXPECT_EQ(offloaded_layers(net, "*").size(), net.layers.size());
  EXPECT_EQ(offloading_text({0, 1, 3}, net),
            net.layers[0].name + " to " + net.layers[1].name + ", " + net.layers[3].name);
  EXPECT_EQ(offloading_text({}, net), "none");
  try {
    offloaded_layers(net, "conv9");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("aloni::nn::offloaded_layers"));
    EXPECT_THAT(e.expectation(), testing::HasSubstr("did you mean conv1?"));
  }
}

TEST(Offloading, RefusesPositionsThatAreNoLayers) {
  const NetworkDescription net = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  const auto layers = static_cast<int>(net.layers.size());
  for (const Offloading& wrong : {Offloading{-1}, Offloading{layers}, Offloading{2, 1}, Offloading{1, 1}})
    EXPECT_THROW(planned(net, 4, {.offload = wrong}), InvalidArgument);
}

TEST(Offloading, TakesMemoryOfTheHostInsteadOfTheDevice) {
  for (const char* const model : {"resnet18", "densenet121", "unet2d", "mesh1k"}) {
    const NetworkDescription net = make_model(model, {.input = views::make_extents(1, {64, 64}, 3)});
    const PlanMemoryUse kept = memory_of(planned(net, 8, {}));
    const PlanMemoryUse moved = memory_of(planned(net, 8, {.offload = offloaded_layers(net, "*")}));
    EXPECT_EQ(kept.host, 0);
    const Index gates = 4 * 2 * static_cast<Index>(net.layers.size());
    EXPECT_LE(moved.separate, kept.separate + gates) << model;
    // Without parameters, gradients and states, which stay.
    const Index stay =
        kept.of(BufferRole::parameters) + kept.of(BufferRole::parameter_gradients) + kept.of(BufferRole::optimiser);
    EXPECT_LT(moved.peak - stay, (kept.peak - stay) * 8 / 10) << model;
    EXPECT_GE(moved.host, kept.peak - moved.peak) << model;
    EXPECT_LE(moved.host, moved.of(BufferRole::offloaded) + 64 * static_cast<Index>(net.layers.size() * 2)) << model;
  }
}

TEST(Offloading, OfOneLayerLeavesTheOthersOnTheDevice) {
  const NetworkDescription net = make_model("resnet18", {});
  const StepPlan plan = planned(net, 8, {.offload = offloaded_layers(net, "stage1.block1.bn1")});
  int copies = 0;
  for (const PlanNode& node : plan.nodes) {
    const OffloadWork* const copy = copy_of(node);
    if (!copy) continue;
    ++copies;
    EXPECT_EQ(plan.buffers[static_cast<std::size_t>(copy->buffer)].name, "stage1.block1.bn1_y");
    EXPECT_EQ(net.layers[static_cast<std::size_t>(node.layer)].name, "stage1.block1.bn1");
  }
  EXPECT_EQ(copies, 2);
}

/// The positions of the copies of a buffer in a plan.
struct Copies {
  int away = -1, back = -1;
};
std::map<BufferId, Copies> copies_by_buffer(const StepPlan& plan) {
  std::map<BufferId, Copies> all_copies;
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n)
    if (const OffloadWork* const copy = copy_of(plan.nodes[static_cast<std::size_t>(n)]))
      (copy->back ? all_copies[copy->buffer].back : all_copies[copy->buffer].away) = n;
  return all_copies;
}

/// Kernels between `first` and `last`, without copies.
int kernels_between(const StepPlan& plan, int first, int last) {
  int kernels = 0;
  for (int n = first + 1; n < last; ++n) {
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
    kernels += node.kind() == NodeKind::kernel && !copy_of(node) ? 1 : 0;
  }
  return kernels;
}

/// Copies have kernels beside them in both directions, and few buffers are on their way at once.
TEST(Offloading, CopiesRunBesideKernels) {
  const NetworkDescription net = make_model("resnet18", {});
  const StepPlan plan = planned(net, 8, {.offload = offloaded_layers(net, "*")});
  const std::map<BufferId, Copies> all_copies = copies_by_buffer(plan);
  ASSERT_GT(all_copies.size(), 20u);
  const MemoryLayout layout = lay_out_memory({&plan}, {});
  int hidden_away = 0, hidden_back = 0;
  std::vector<int> on_the_way(plan.nodes.size(), 0);
  for (const auto& [b, copies] : all_copies) {
    const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(b)];
    ASSERT_EQ(buffer.unused.size(), 1u) << buffer.name;
    const NodeRange unused = buffer.unused.front();
    EXPECT_LT(copies.away, unused.first) << buffer.name;
    EXPECT_LE(unused.first, unused.last) << buffer.name;
    EXPECT_EQ(unused.last, copies.back - 1) << buffer.name;
    hidden_away += kernels_between(plan, copies.away, unused.first) > 0 ? 1 : 0;
    for (int n = copies.away; n < unused.first; ++n) ++on_the_way[static_cast<std::size_t>(n)];
    // Until then its place is its own.
    const MemoryLayout::Place& place = layout.places.at(buffer.name);
    for (int n = copies.away; n < unused.first; ++n) {
      const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
      for (const auto* regions : {&node.reads, &node.writes}) {
        for (const PlanRegion& r : *regions) {
          const auto other = layout.places.find(plan.buffers[static_cast<std::size_t>(plan.root(r.buffer))].name);
          if (plan.root(r.buffer) == b || other == layout.places.end()) continue;
          const auto& [memory, offset, bytes, segment] = other->second;
          const bool overlaps = memory == place.memory && segment == place.segment &&
                                offset < place.offset + place.bytes && place.offset < offset + bytes;
          EXPECT_FALSE(overlaps) << other->first << " in the place of " << buffer.name << " at " << node.label;
        }
      }
    }
    int used = copies.back + 1;
    const auto uses = [&](const PlanNode& node) {
      const auto is_it = [&](const PlanRegion& r) { return plan.root(r.buffer) == b; };
      return std::ranges::any_of(node.reads, is_it) || std::ranges::any_of(node.writes, is_it);
    };
    while (!uses(plan.nodes[static_cast<std::size_t>(used)])) ++used;
    hidden_back += kernels_between(plan, copies.back, used) > 0 ? 1 : 0;
    for (int n = copies.back; n < used; ++n) ++on_the_way[static_cast<std::size_t>(n)];
  }
  // Those of two nodes, which use up to two each.
  EXPECT_LE(*std::ranges::max_element(on_the_way), 4);
  EXPECT_GT(2 * hidden_away, static_cast<int>(all_copies.size()));
  EXPECT_GT(2 * hidden_back, static_cast<int>(all_copies.size()));
}

/// Beside the same kernels a fast link needs less time for a buffer: its memory is free earlier, and it returns later.
TEST(Offloading, FastLinksKeepBuffersInHostMemoryForLonger) {
  const NetworkDescription net = make_model("resnet18", {});
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 8);
  const auto kernels_without = [&](double factor, ElementType type) {
    const MachineDescription machine{.on_host = false, .work_per_copied_byte = {1000 * factor, 8000, 60 * factor}};
    const StepPlan plan = plan_step(net, layers, 0, StepKind::training, machine,
                                    {.activations = type, .offload = offloaded_layers(net, "*")});
    EXPECT_FALSE(verify(layers, {{plan}}));
    int kernels = 0;
    for (const auto& [b, copies] : copies_by_buffer(plan)) {
      const NodeRange unused = plan.buffers[static_cast<std::size_t>(b)].unused.front();
      kernels += kernels_between(plan, unused.first - 1, unused.last + 1);
    }
    return kernels;
  };
  const int fast = kernels_without(0.1, ElementType::float32), usual = kernels_without(1, ElementType::float32);
  EXPECT_GT(fast, usual);
  EXPECT_GE(usual, kernels_without(10, ElementType::float32));
  EXPECT_GT(kernels_without(0.1, ElementType::bfloat16), kernels_without(10, ElementType::bfloat16)) << "traffic";
}

TEST(Offloading, RefusesWorkThatIsNoNumber) {
  for (const WorkPerCopiedByte wrong : {WorkPerCopiedByte{.flops = 0}, WorkPerCopiedByte{.flops_16_bit = -1},
                                        WorkPerCopiedByte{.traffic = std::numeric_limits<double>::infinity()}}) {
    try {
      check_work_per_copied_byte(wrong, "aloni::test", "work");
      FAIL();
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("finite numbers above 0"));
    }
  }
  EXPECT_NO_THROW(check_work_per_copied_byte({}, "aloni::test", "work"));
}

/// Without a loss between both passes the activations that are used last would return at once.
TEST(Offloading, BuffersStayWhoseMemoryWouldNotBeFree) {
  const NetworkDescription net = make_model("resnet18", {});
  const StepPlan plan = planned(net, 8, {.offload = offloaded_layers(net, "*")}, StepKind::gradients);
  const std::map<BufferId, Copies> all_copies = copies_by_buffer(plan);
  EXPECT_GT(all_copies.size(), 20u);
  for (const auto& [b, copies] : all_copies)
    EXPECT_EQ(plan.buffers[static_cast<std::size_t>(b)].unused.size(), 1u)
        << plan.buffers[static_cast<std::size_t>(b)].name;
}

TEST(Offloading, PositionsOfMaximaLeaveToo) {
  const NetworkDescription net = make_model("unet2d", {.input = views::make_extents(1, {32, 32}, 1)});
  const StepPlan plan = planned(net, 2, {.offload = offloaded_layers(net, "*")});
  const auto all = copies_by_buffer(plan);
  EXPECT_TRUE(std::ranges::any_of(all, [&](const auto& moved) {
    return plan.buffers[static_cast<std::size_t>(moved.first)].type == ElementType::int32;
  }));
}

TEST(Offloading, NeedsABackwardPass) {
  const NetworkDescription net = make_model("resnet18", {});
  const StepPlan plan = planned(net, 8, {.offload = offloaded_layers(net, "*")}, StepKind::inference);
  EXPECT_TRUE(std::ranges::none_of(plan.nodes, [](const PlanNode& n) { return copy_of(n) != nullptr; }));
  EXPECT_EQ(memory_of(plan).host, 0);
}

const MachineDescription device{.on_host = false};

TEST(Offloading, AsFewLayersAsMeetTheLimitLeave) {
  const NetworkDescription net = make_model("resnet18", {});
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 8);
  const auto peak = [&](const Offloading& offload) {
    return memory_of(plan_step(net, layers, 0, StepKind::training, device, {.offload = offload}), device).peak;
  };
  const Offloading all = offloaded_layers(net, "*");
  const Index kept = peak({}), least = peak(all), middle = (kept + least) / 2;
  EXPECT_EQ(choose_offloading(net, layers, device, {}, std::nullopt), all);
  EXPECT_EQ(choose_offloading(net, layers, device, {}, kept), Offloading{});
  EXPECT_EQ(choose_offloading(net, layers, device, {}, least / 2), all);
  const Offloading some = choose_offloading(net, layers, device, {}, middle);
  ASSERT_GT(some.size(), 0u);
  ASSERT_LT(some.size(), all.size());
  EXPECT_EQ(some.front(), 0);
  EXPECT_EQ(some.back(), static_cast<int>(some.size()) - 1);
  EXPECT_LE(peak(some), middle);
  EXPECT_GT(peak({some.begin(), some.end() - 1}), middle);
}

/// Six convolutions with many channels: their kernels take longer than copies of their outputs.
NetworkDescription wide_net() {
  NetworkDescription net{.spatial_rank = 2, .input = views::make_extents(1, {32, 32}, 3), .layers = {}};
  for (int i = 0; i < 6; ++i)
    net.layers.push_back({"conv" + std::to_string(i),
                          Convolution{1024, square_window(2, 3, 1, 1)},
                          {i == 0 ? "input" : net.layers.back().name}});
  net.layers.push_back({"mean", GlobalAveragePooling{}, {"conv5"}});
  net.layers.push_back({"fc", Dense{10}, {"mean"}});
  return net;
}

TEST(Offloading, ComesBeforeRecomputationAsFarAsKernelsHideIt) {
  for (const auto& [net, hidden] : {std::pair(wide_net(), true), std::pair(make_model("resnet18", {}), false)}) {
    const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 8);
    const auto savings = [&, &net = net](const MemoryWish& wish) {
      return memory_savings_for(net, layers, device, {}, wish);
    };
    const Index kept = savings({}).recomputation.peak_bytes;
    const MemorySavings moved = savings({.offload = "auto"});
    const Index limit = (kept + 3 * moved.recomputation.peak_bytes) / 4;
    const MemorySavings alone = savings({.offload = "auto", .limit = limit});
    const MemorySavings both = savings({.recompute = "auto", .offload = "auto", .limit = limit});
    EXPECT_LE(both.recomputation.peak_bytes, limit);
    EXPECT_LE(alone.recomputation.peak_bytes, limit);
    EXPECT_LT(alone.offload.size(), moved.offload.size());
    EXPECT_TRUE(alone.recomputation.blocks.empty());
    EXPECT_EQ(both.recomputation.blocks.empty(), hidden);
    EXPECT_EQ(both.offload.size() == alone.offload.size(), hidden);
    StepOptions options;
    both.apply(options);
    EXPECT_EQ(options.offload, both.offload);
    EXPECT_EQ(options.recompute, both.recomputation.blocks);
  }
}

TEST(Offloading, IsRefusedWithTheWaysThatAreLeft) {
  const NetworkDescription net = make_model("resnet18", {});
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 8);
  const auto savings = [&](const MemoryWish& wish) { return memory_savings_for(net, layers, device, {}, wish); };
  const MemorySavings none = savings({}), moved = savings({.offload = "auto"});
  EXPECT_TRUE(none.recomputation.blocks.empty() && none.offload.empty());
  EXPECT_GT(moved.moved_bytes, 0);
  EXPECT_GE(moved.moved_bytes, moved.host_bytes - 64 * static_cast<Index>(2 * net.layers.size()));
  const auto fault = [&](const MemoryWish& wish) -> std::string {
    try {
      savings(wish);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(fault({.limit = none.recomputation.peak_bytes}), "");
  const Index too_little = moved.recomputation.peak_bytes / 2;
  EXPECT_THAT(fault({.limit = too_little}), testing::HasSubstr("offloading \"auto\""));
  EXPECT_THAT(fault({.offload = "auto", .limit = too_little}),
              testing::AllOf(testing::HasSubstr("at least " + std::to_string(moved.recomputation.peak_bytes)),
                             testing::HasSubstr("Recomputation \"auto\"")));
  EXPECT_THAT(fault({.offload = "conv9*"}), testing::HasSubstr("pattern"));
  try {
    memory_savings_for(net, layers, {}, {}, {.offload = "auto"});
    FAIL() << "offloads from a host";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("in host memory already"));
  }
}

// --- faults ---

/// A copy in the given direction; -1: there is none.
int any_copy(const StepPlan& plan, bool back, Dice& dice) {
  std::vector<int> found;
  for (const auto& [b, copies] : copies_by_buffer(plan)) found.push_back(back ? copies.back : copies.away);
  return found.empty() ? -1 : found[static_cast<std::size_t>(dice(0, static_cast<Index>(found.size()) - 1))];
}

PlanFaults faults() {
  const auto drop = [](bool back) -> Change {
    return [back](StepPlan& plan, Dice& dice) {
      const int n = any_copy(plan, back, dice);
      if (n < 0) return false;
      plan.nodes.erase(plan.nodes.begin() + n);
      for (PlanNode& node : plan.nodes)
        if (node.repeats > n) --node.repeats;
      // The ranges without contents are those of the list with this node.
      for (PlanBuffer& b : plan.buffers)
        for (NodeRange& unused : b.unused)
          unused = {unused.first - (unused.first > n), unused.last - (unused.last >= n)};
      return true;
    };
  };
  const auto change = [](bool back, std::function<bool(StepPlan&, PlanNode&, OffloadWork&, Dice&)> f) -> Change {
    return [back, f](StepPlan& plan, Dice& dice) {
      const int n = any_copy(plan, back, dice);
      if (n < 0) return false;
      PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
      return f(plan, node, std::get<OffloadWork>(node.work), dice);
    };
  };
  return {
      {"a buffer does not return", {drop(true), {"which was dropped after its writer"}}},
      {"a buffer does not leave", {drop(false), {"which has not left"}}},
      {"another buffer returns",
       {[](StepPlan& plan, Dice& dice) {
          const auto all_copies = copies_by_buffer(plan);
          const int n = any_copy(plan, true, dice);
          if (n < 0) return false;
          PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
          auto& copy = std::get<OffloadWork>(node.work);
          for (const auto& [b, copies] : all_copies) {
            const PlanNode& other = plan.nodes[static_cast<std::size_t>(copies.away)];
            const BufferId host = copy_of(other)->host;
            const auto box = [&](BufferId id) { return plan.buffers[static_cast<std::size_t>(id)].box; };
            if (host == copy.host || box(host) != box(copy.host)) continue;
            copy.host = host;
            node.reads[0].buffer = host;
            return true;
          }
          return false;
        },
        {"is no copy of", "differ in their boxes"}}},
      {"a buffer changes after it has left",
       {[](StepPlan& plan, Dice& dice) {
          const int n = any_copy(plan, false, dice);
          if (n < 0) return false;
          const BufferId b = copy_of(plan.nodes[static_cast<std::size_t>(n)])->buffer;
          for (int before = n - 1; before >= 0; --before) {
            const PlanNode& writer = plan.nodes[static_cast<std::size_t>(before)];
            const auto writes = [&](const PlanRegion& r) { return plan.root(r.buffer) == b; };
            if (std::ranges::none_of(writer.writes, writes)) continue;
            // It leaves before its last writer.
            std::rotate(plan.nodes.begin() + before, plan.nodes.begin() + n, plan.nodes.begin() + n + 1);
            for (PlanNode& other : plan.nodes)
              if (other.repeats >= before && other.repeats < n) ++other.repeats;
            return true;
          }
          return false;
        },
        {"changed after it had left"}}},
      {"a buffer is read while it is away",
       {[](StepPlan& plan, Dice& dice) {
          const int n = any_copy(plan, false, dice);
          if (n < 0) return false;
          const BufferId b = copy_of(plan.nodes[static_cast<std::size_t>(n)])->buffer;
          plan.buffers[static_cast<std::size_t>(b)].unused.front().last = static_cast<int>(plan.nodes.size()) - 1;
          return true;
        },
        {"which was dropped after its writer"}}},
      {"a copy of a part",
       {change(false,
               [](StepPlan&, PlanNode& node, OffloadWork&, Dice&) {
                 views::Box& box = node.reads[0].box;
                 box.set(views::Dim::channel, box.lower(views::Dim::channel), box.upper(views::Dim::channel) - 1);
                 return true;
               }),
        {"which the node does not name"}}},
      {"a return in the forward pass",
       {change(true,
               [](StepPlan&, PlanNode& node, OffloadWork&, Dice&) {
                 node.phase = StepPhase::forward;
                 return true;
               }),
        {"in the wrong phase"}}},
      {"a place of another size",
       {change(false,
               [](StepPlan& plan, PlanNode&, OffloadWork& copy, Dice&) {
                 views::Box& box = plan.buffers[static_cast<std::size_t>(copy.host)].box;
                 box.set(views::Dim::channel, box.lower(views::Dim::channel), box.upper(views::Dim::channel) + 1);
                 return true;
               }),
        {"differ in their boxes", "does not name"}}},
      {"a place on the device",
       {change(false,
               [](StepPlan& plan, PlanNode&, OffloadWork& copy, Dice&) {
                 plan.buffers[static_cast<std::size_t>(copy.host)].role = BufferRole::activation;
                 return true;
               }),
        {"copies between"}}},
  };
}

TEST(Offloading, EveryDeliberateFaultIsRefused) {
  expect_refused(faults(), 900, [](Dice& dice, int layers) -> StepOptions {
    return {.recompute = dice(0, 1) == 0 ? random_recomputation(dice, layers) : Recomputation{},
            .offload = random_offloading(dice, layers)};
  });
}

}  // namespace test_offloading
