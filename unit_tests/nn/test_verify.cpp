// Step plans of random networks pass verify() for all ranks; plans with one deliberate fault do not.
#include "random_network.hpp"

#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace test_verify {

using namespace aloni;
using namespace aloni::nn;
using namespace aloni::nn::test;
using views::Box;

/// The plans of all ranks for one network.
struct Case {
  NetworkDescription network;
  NetworkPlan layers;
  std::vector<StepPlan> plans;
};

Case random_case(std::uint64_t seed, int most_ranks) {
  Dice dice(seed);
  Case c;
  c.network = random_network(dice, Kinds::all);
  const int ranks = static_cast<int>(dice(0, 2) == 0 ? dice(1, most_ranks) : dice(1, 8));
  std::vector<LayerSplit> splits;
  const bool uniform = dice(0, 1) == 0;
  for (std::size_t l = 0; l < c.network.layers.size(); ++l)
    splits.push_back(uniform && l > 0 ? splits[0] : random_split(dice, ranks, c.network.spatial_rank));
  const Strategy strategy = strategy_of(c.network, splits);
  const Index samples = dice(1, 5);
  Dice other(seed + 1000000);  // every third input is a tensor of the caller
  std::optional<AdoptedInputPlan> adopted;
  if (other(0, 2) == 0) {
    Extents input = c.network.input;
    input[Dim::sample] = samples;
    adopted = AdoptedInputPlan{random_distribution(other, input, c.network.spatial_rank, ranks), other(0, 1) == 0};
  }
  c.layers = plan_network(c.network, resolve(strategy, c.network, ranks), ranks, samples, adopted);
  MachineDescription machine = machine_of_nodes(ranks, static_cast<int>(dice(0, 3)));
  machine.chunk_bytes = dice(0, 1) == 0 ? 200 : 1 << 20;  // small tensors in chunks
  machine.bucket_bytes = dice(0, 1) == 0 ? 64 : 1 << 20;
  machine.multiplications_per_slab = dice(0, 1) == 0 ? 1000 : 100e6;
  StepOptions options{.activations = dice(0, 3) == 0 ? ElementType::bfloat16 : ElementType::float32,
                      .split_parameters = dice(0, 1) == 0,
                      .input_gradient = dice(0, 1) == 0,
                      .sums_beside_backward = dice(0, 3) != 0};
  if (dice(0, 1) == 0) options.largest_overhead = 1;
  const auto kind = static_cast<StepKind>(std::min<Index>(dice(0, 3), 2));
  for (int r = 0; r < ranks; ++r) c.plans.push_back(plan_step(c.network, c.layers, r, kind, machine, options));
  return c;
}

std::string text_of(const Case& c) {
  std::string text;
  for (const LayerDescription& layer : c.network.layers) text += to_string(layer) + '\n';
  return text + std::to_string(c.plans.size()) + " ranks";
}

TEST(Verify, StepsOfRandomNetworksAreRight) {
  for (int i = 0; i < aloni::test::random_cases(3000); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 64);
    const auto fault = verify(c.layers, c.plans);
    ASSERT_FALSE(fault) << "case " << i << '\n' << text_of(c) << '\n' << to_string(*fault);
  }
}

TEST(Verify, NoLayoutOfARandomNetworkOverwritesWhatIsStillNeeded) {
  for (int i = 0; i < aloni::test::random_cases(600); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 16);
    const MachineDescription machine = machine_of_nodes(static_cast<int>(c.plans.size()), i % 4);
    for (const StepPlan& plan : c.plans) {
      const MemoryLayout layout = lay_out_memory({&plan}, machine);
      const auto fault = find_overwritten(plan, layout, {.seed = static_cast<std::uint64_t>(i % 3)});
      ASSERT_FALSE(fault) << "case " << i << ", rank " << plan.rank << '\n' << text_of(c) << '\n' << *fault;
    }
  }
}

/// The nodes that write and that read a buffer or an alias of it, ascending.
struct Uses {
  std::vector<int> writes, reads;
};
std::vector<Uses> uses_of(const StepPlan& plan) {
  std::vector<Uses> uses(plan.buffers.size());
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n) {
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
    for (const PlanRegion& r : node.writes) uses[static_cast<std::size_t>(plan.root(r.buffer))].writes.push_back(n);
    for (const PlanRegion& r : node.reads) uses[static_cast<std::size_t>(plan.root(r.buffer))].reads.push_back(n);
  }
  return uses;
}

TEST(Verify, LayoutsWithABufferInTheWrongPlaceAreRefused) {
  int refused = 0, changed = 0;
  for (int i = 0; i < 100; ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 4);
    const StepPlan& plan = c.plans[0];
    const MemoryLayout layout = lay_out_memory({&plan}, {});
    const std::vector<Uses> uses = uses_of(plan);
    for (std::size_t a = 0; a < plan.buffers.size(); ++a) {
      for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
        const auto place_a = layout.places.find(plan.buffers[a].name),
                   place_b = layout.places.find(plan.buffers[b].name);
        if (a == b || place_a == layout.places.end() || place_b == layout.places.end()) continue;
        if (place_a->second.bytes == 0 || place_b->second.bytes == 0) continue;
        if (uses[a].writes.empty() || uses[a].reads.empty() || uses[b].writes.empty()) continue;
        // b is written when a is complete, and a is read after that: by a node that depends on b.
        const int written = uses[b].writes.front();
        if (uses[a].writes.back() >= written || uses[a].reads.back() <= written) continue;
        if (std::ranges::find(uses[b].reads, uses[a].reads.back()) == uses[b].reads.end()) continue;
        MemoryLayout wrong = layout;
        wrong.places[plan.buffers[b].name].offset = place_a->second.offset;
        wrong.places[plan.buffers[b].name].shared = place_a->second.shared;
        ++changed;
        if (find_overwritten(plan, wrong)) ++refused;
      }
    }
  }
  EXPECT_GT(changed, 40);
  EXPECT_EQ(refused, changed);
}

// --- deliberate faults ---

/// Changes one plan. Returns whether there was something to change. `dice` chooses rank and node.
using Change = std::function<bool(Case&, Dice&)>;

StepPlan& any_plan(Case& c, Dice& dice) {
  return c.plans[static_cast<std::size_t>(dice(0, static_cast<Index>(c.plans.size()) - 1))];
}

/// The nodes whose work is a W and satisfies the condition.
template <class W>
std::vector<std::size_t> nodes_of(const StepPlan& plan, const std::function<bool(const W&)>& condition = {}) {
  std::vector<std::size_t> nodes;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (const auto* w = std::get_if<W>(&plan.nodes[n].work); w && (!condition || condition(*w))) nodes.push_back(n);
  return nodes;
}

template <class T>
T& pick(std::vector<T>& list, Dice& dice) {
  return list[static_cast<std::size_t>(dice(0, static_cast<Index>(list.size()) - 1))];
}

template <class W>
Change drop(std::function<bool(const W&)> condition = {}) {
  return [condition](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    auto nodes = nodes_of<W>(plan, condition);
    if (nodes.empty()) return false;
    plan.nodes.erase(plan.nodes.begin() + static_cast<std::ptrdiff_t>(pick(nodes, dice)));
    return true;
  };
}

/// Changes the work of one node of the kind.
template <class W>
Change change(std::function<bool(W&, Dice&)> work) {
  return [work](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    auto nodes = nodes_of<W>(plan);
    if (nodes.empty()) return false;
    return work(std::get<W>(plan.nodes[pick(nodes, dice)].work), dice);
  };
}

/// Makes a box one smaller in one dimension. Returns false for a box that has no dimension above one.
bool shrink(Box& box, Dice& dice) {
  std::vector<Dim> dims;
  for (const Dim d : views::all_dims)
    if (box.extent(d) > 1) dims.push_back(d);
  if (box.empty() || dims.empty()) return false;
  const Dim d = pick(dims, dice);
  if (dice(0, 1) == 0) {
    box.set(d, box.lower(d) + 1, box.upper(d));
  } else {
    box.set(d, box.lower(d), box.upper(d) - 1);
  }
  return true;
}

TransferItemPlan* item_with_messages(TransferWork& w, bool sends) {
  for (TransferItemPlan& item : w.items)
    if (!(sends ? item.plan.sends : item.plan.receives).empty()) return &item;
  return nullptr;
}

std::map<std::string, Change> faults() {
  std::map<std::string, Change> all;
  all["a forward convolution is dropped"] =
      drop<ConvolutionWork>([](const auto& w) { return !w.backward && !w.region.empty(); });
  all["a backward-data convolution is dropped"] =
      drop<ConvolutionWork>([](const auto& w) { return w.backward && !w.region.empty(); });
  all["a gradient of filters is dropped"] =
      drop<FilterGradientWork>([](const auto& w) { return !w.calls.empty() && w.calls[0].computes; });
  all["a gradient of a bias is dropped"] = drop<BiasGradientWork>([](const auto& w) { return w.counts; });
  all["a rounding is dropped"] = drop<RoundingWork>();
  all["a forward pooling is dropped"] = drop<PoolingWork>([](const auto& w) { return !w.backward; });
  all["a backward pooling is dropped"] = drop<PoolingWork>([](const auto& w) { return w.backward; });
  all["a resampling is dropped"] = drop<ResamplingWork>();
  all["a normalisation is dropped"] = drop<NormalisationWork>(
      [](const auto& w) { return w.stage == NormalisationStage::forward && !w.region.empty(); });
  all["the sums of a normalisation are dropped"] = drop<NormalisationWork>([](const auto& w) {
    return w.stage == NormalisationStage::statistics && w.kind != NormalisationKind::layer && !w.region.empty();
  });
  all["a gradient through a normalisation is dropped"] = drop<NormalisationWork>(
      [](const auto& w) { return w.stage == NormalisationStage::backward && !w.region.empty(); });
  all["a mean is dropped"] = drop<GlobalAverageWork>();
  all["a forward dense layer is dropped"] = drop<DenseWork>([](const auto& w) { return w.pass == DensePass::forward; });
  all["a gradient of a dense layer is dropped"] =
      drop<DenseWork>([](const auto& w) { return w.pass == DensePass::parameters; });
  all["a forward pointwise layer is dropped"] =
      drop<PointwiseWork>([](const auto& w) { return w.function == PointwiseFunction::layer; });
  all["a gradient through a pointwise layer is dropped"] =
      drop<PointwiseWork>([](const auto& w) { return w.function == PointwiseFunction::layer_gradient; });
  all["a sum is dropped"] = drop<PointwiseWork>([](const auto& w) { return w.function == PointwiseFunction::add; });
  all["a copy is dropped"] = drop<PointwiseWork>([](const auto& w) { return w.function == PointwiseFunction::copy; });
  all["a dropout is dropped"] = drop<DropoutWork>();
  all["a mask belongs to another layer"] = change<DropoutWork>([](DropoutWork& w, Dice&) {
    ++w.layer;
    return true;
  });
  all["a loss is dropped"] = drop<LossWork>();
  all["the sums of a loss are dropped"] = drop<LossWork>([](const auto& w) { return w.stage == LossStage::sums; });
  all["a loss is computed before its sums are summed over the ranks"] = [](Case& c, Dice& dice) {
    if (c.plans.size() < 2) return false;
    StepPlan& plan = any_plan(c, dice);
    const auto losses = nodes_of<LossWork>(plan, [](const auto& w) { return w.stage == LossStage::rest; });
    if (losses.empty()) return false;
    std::swap(plan.nodes[losses[0]], plan.nodes[losses[0] - 1]);
    return true;
  };
  all["a node writes the memory of the caller"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const std::vector<Uses> uses = uses_of(plan);
    std::vector<std::size_t> written;
    for (std::size_t b = 0; b < uses.size(); ++b)
      if (!uses[b].writes.empty()) written.push_back(b);
    if (written.empty()) return false;
    plan.buffers[pick(written, dice)].adopted = true;
    return true;
  };
  all["a transfer is dropped"] = drop<TransferWork>();
  all["a sum over ranks is dropped"] = drop<ReductionWork>();

  all["a node is listed before a node that it needs"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const StepGraph graph = graph_of(plan);
    const auto before = dependencies(graph);
    std::vector<std::size_t> nodes;  // whose predecessor in the list writes what they read
    for (std::size_t n = 1; n < plan.nodes.size(); ++n) {
      const PlanNode &a = plan.nodes[n - 1], &b = plan.nodes[n];
      const auto role = [&](const PlanRegion& r) { return plan.buffers[static_cast<std::size_t>(r.buffer)].role; };
      for (const PlanRegion& w : a.writes)
        for (const PlanRegion& r : b.reads)
          if (w.buffer == r.buffer && !intersect(w.box, r.box).empty() && role(w) == BufferRole::activation &&
              b.layer != a.layer)
            nodes.push_back(n);
    }
    if (nodes.empty()) return false;
    const std::size_t n = pick(nodes, dice);
    std::swap(plan.nodes[n - 1], plan.nodes[n]);
    return true;
  };
  all["two communications change places"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    std::vector<std::size_t> nodes;
    for (std::size_t n = 0; n < plan.nodes.size(); ++n)
      if (plan.nodes[n].kind() != NodeKind::kernel) nodes.push_back(n);
    if (nodes.size() < 2) return false;
    const auto k = static_cast<std::size_t>(dice(1, static_cast<Index>(nodes.size()) - 1));
    std::swap(plan.nodes[nodes[k - 1]], plan.nodes[nodes[k]]);
    return true;
  };
  all["a summand is counted twice"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    for (PlanNode& n : plan.nodes) {
      if (n.summands.empty() || n.summands[0].outputs.empty()) continue;
      n.summands.push_back(n.summands[0]);
      return true;
    }
    return false;
  };
  all["a summand covers one row too few"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    for (PlanNode& n : plan.nodes) {
      if (n.summands.empty()) continue;
      Box& box = n.summands[0].outputs;
      for (const Dim d : {Dim::sample, Dim::height, Dim::width}) {
        if (box.extent(d) < 2) continue;
        box.set(d, box.lower(d), box.upper(d) - 1);
        return true;
      }
    }
    return false;
  };
  const auto region = [](bool written) {
    return [written](Case& c, Dice& dice) {
      StepPlan& plan = any_plan(c, dice);
      PlanNode& n = pick(plan.nodes, dice);
      if (n.kind() != NodeKind::kernel || std::holds_alternative<WeightsWork>(n.work)) return false;
      auto& regions = written ? n.writes : n.reads;
      if (regions.empty()) return false;
      PlanRegion& r = pick(regions, dice);
      const PlanBuffer& b = plan.buffers[static_cast<std::size_t>(r.buffer)];
      const bool counts = b.role == BufferRole::activation || b.role == BufferRole::gradient;
      // A sum of a tensor with itself names it twice.
      if (std::ranges::count(regions, r.buffer, &PlanRegion::buffer) > 1) return false;
      return counts && n.phase != StepPhase::update && shrink(r.box, dice);
    };
  };
  all["a node names less than it writes"] = region(true);
  all["a node names less than it reads"] = [region](Case& c, Dice& dice) {
    // A convolution that names less than it needs has fewer results; stale ghosts are not named on purpose.
    return region(false)(c, dice);
  };

  all["a kernel gets a source one too small"] = change<ConvolutionWork>([](ConvolutionWork& w, Dice& dice) {
    if (w.calls.empty() || !w.calls[0].computes) return false;
    return shrink(w.calls[0].source, dice);
  });
  all["a kernel computes one row too few"] = change<ConvolutionWork>([](ConvolutionWork& w, Dice& dice) {
    if (w.calls.empty() || !w.calls[0].computes) return false;
    return shrink(w.calls[0].target, dice);
  });
  all["a kernel has a wrong offset"] = change<ConvolutionWork>([](ConvolutionWork& w, Dice&) {
    if (w.calls.empty() || !w.calls[0].computes) return false;
    ++w.calls[0].problem.offset[2];
    return true;
  });
  all["a kernel has a wrong number of channels"] = change<FilterGradientWork>([](FilterGradientWork& w, Dice&) {
    if (w.calls.empty() || !w.calls[0].computes) return false;
    ++w.calls[0].problem.channels;
    return true;
  });
  all["a pooling has a wrong offset"] = change<PoolingWork>([](PoolingWork& w, Dice&) {
    ++w.problem.offset[2];
    return true;
  });
  all["a pooling gets a window one too small"] =
      change<PoolingWork>([](PoolingWork& w, Dice& dice) { return shrink(w.backward ? w.to : w.from, dice); });
  all["a resampling starts at another index"] = change<ResamplingWork>([](ResamplingWork& w, Dice&) {
    ++w.problem.input_lower[2];
    return true;
  });
  all["a pointwise layer computes one row too few"] =
      change<PointwiseWork>([](PointwiseWork& w, Dice& dice) { return shrink(w.output.box, dice); });
  all["a layer writes into the buffer of another one"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    auto nodes = nodes_of<PointwiseWork>(plan);
    if (nodes.empty()) return false;
    PlanNode& n = plan.nodes[pick(nodes, dice)];
    auto& w = std::get<PointwiseWork>(n.work);
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const PlanBuffer& other = plan.buffers[b];
      const auto id = static_cast<BufferId>(b);
      if (id == w.output.buffer || other.role != plan.buffers[static_cast<std::size_t>(w.output.buffer)].role ||
          other.persistent || !contains(other.box, w.output.box) || w.output.box.empty())
        continue;
      for (PlanRegion& r : n.writes)
        if (r.buffer == w.output.buffer) r.buffer = id;
      w.output.buffer = id;
      return true;
    }
    return false;
  };

  const auto message = [](bool sends, const std::function<bool(TransferItemPlan&, halo::Message&, Dice&)>& f) {
    return change<TransferWork>([sends, f](TransferWork& w, Dice& dice) {
      TransferItemPlan* const item = item_with_messages(w, sends);
      if (!item) return false;
      return f(*item, pick(sends ? item->plan.sends : item->plan.receives, dice), dice);
    });
  };
  all["a message has one element too many"] = message(true, [](auto&, halo::Message& m, Dice&) {
    ++m.elements;
    return true;
  });
  all["a message goes to another rank"] = message(true, [](auto&, halo::Message& m, Dice&) {
    ++m.peer;
    return true;
  });
  all["a message is not sent"] = message(true, [](TransferItemPlan& item, halo::Message&, Dice&) {
    item.plan.sends.pop_back();
    return true;
  });
  all["a message is not expected"] = message(false, [](TransferItemPlan& item, halo::Message&, Dice&) {
    item.plan.receives.pop_back();
    return true;
  });
  all["a message comes from another box"] =
      message(true, [](auto&, halo::Message& m, Dice& dice) { return shrink(pick(m.moves, dice).source, dice); });
  all["a message goes to another box"] =
      message(false, [](auto&, halo::Message& m, Dice& dice) { return shrink(pick(m.moves, dice).destination, dice); });
  all["a local copy of a transfer is missing"] = change<TransferWork>([](TransferWork& w, Dice&) {
    for (TransferItemPlan& item : w.items) {
      if (item.plan.local.empty() || w.adjoint) continue;
      item.plan.local.pop_back();
      return true;
    }
    return false;
  });
  all["one rank runs the adjoint"] = [](Case& c, Dice& dice) {
    if (c.plans.size() < 2) return false;
    return change<TransferWork>([](TransferWork& w, Dice&) {
      w.adjoint = !w.adjoint;
      return true;
    })(c, dice);
  };
  all["a sum over ranks lacks a member"] = change<ReductionWork>([](ReductionWork& w, Dice&) {
    w.members.pop_back();
    return true;
  });
  all["a sum over ranks has another length"] = change<ReductionWork>([](ReductionWork& w, Dice&) {
    ++w.elements;
    return true;
  });
  all["a sum over ranks has another type"] = change<ReductionWork>([](ReductionWork& w, Dice&) {
    w.element_bytes *= 2;
    return true;
  });
  all["the parameters are updated before their gradients are summed"] = [](Case& c, Dice& dice) {
    if (c.plans.size() < 2) return false;
    StepPlan& plan = any_plan(c, dice);
    const auto updates = nodes_of<OptimiserWork>(plan, [](const auto& w) { return w.segment == 0 && w.elements > 0; });
    const auto sums = nodes_of<ReductionWork>(plan, [](const auto& w) { return w.segment == 0; });
    if (updates.empty() || sums.empty() || plan.nodes[updates[0]].reads.empty()) return false;
    const auto update = plan.nodes.begin() + static_cast<std::ptrdiff_t>(updates[0]);
    std::rotate(plan.nodes.begin() + static_cast<std::ptrdiff_t>(sums[0]), update, update + 1);
    return true;
  };
  all["memory is smaller than the owned box"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    for (PlanBuffer& b : plan.buffers)
      if (b.role == BufferRole::activation && !b.owned.empty()) return shrink(b.box, dice);
    return false;
  };
  return all;
}

/// Each fault in many plans. Each plan with a fault is refused, with the rule, a node or ranks.
TEST(Verify, EveryDeliberateFaultIsRefused) {
  const auto all = faults();
  EXPECT_GE(all.size(), 40u);
  for (const auto& [name, change_plan] : all) {
    int tried = 0;
    for (int i = 0; i < 400 && tried < 12; ++i) {
      const auto seed = static_cast<std::uint64_t>(i + 7000);
      Case c = random_case(seed, 6);
      Dice dice(seed + 1);
      if (!change_plan(c, dice)) continue;
      ++tried;
      const auto fault = verify(c.layers, c.plans);
      EXPECT_TRUE(fault) << name << ", case " << seed << '\n' << text_of(c);
      EXPECT_FALSE(fault && (fault->what.empty() || fault->ranks.empty())) << name;
    }
    EXPECT_GT(tried, 2) << name << " was hardly tried";
  }
}

}  // namespace test_verify
