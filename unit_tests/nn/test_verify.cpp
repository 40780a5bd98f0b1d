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
#include <set>
#include <string>
#include <utility>
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

/// `saves`: half of the plans compute some activations again, and a third move some to host memory.
Case random_case(std::uint64_t seed, int most_ranks, bool saves = true) {
  Dice dice(seed);
  Case c;
  c.network = random_network(dice, Kinds::all);
  Dice other(seed + 1000000);
  for (LayerDescription& layer : c.network.layers) {
    auto* const norm = std::get_if<BatchNorm>(&layer.operation);
    if (!norm || other(0, 1) == 0) continue;
    norm->scope = static_cast<StatisticsScope>(other(0, 3));
    norm->ranks = static_cast<int>(other(1, 3));
  }
  const int ranks = static_cast<int>(dice(0, 2) == 0 ? dice(1, most_ranks) : dice(1, 8));
  std::vector<LayerSplit> splits;
  const bool uniform = dice(0, 1) == 0;
  for (std::size_t l = 0; l < c.network.layers.size(); ++l)
    splits.push_back(uniform && l > 0 ? splits[0] : random_split(dice, ranks, c.network.spatial_rank));
  const Strategy strategy = strategy_of(c.network, splits);
  const Index samples = dice(1, 5);
  std::optional<AdoptedInputPlan> adopted;  // every third input is a tensor of the caller
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
                      .sums = dice(0, 3) != 0 ? GradientSums::beside_backward : GradientSums::after_backward,
                      .update = other(0, 4) != 0,
                      .optimiser = static_cast<OptimiserKind>(other(0, 2))};
  if (options.sums == GradientSums::after_backward && !options.split_parameters && seed % 2 == 0)
    options.sums = GradientSums::partial;
  if (other(0, 2) == 0) options.update_options.max_norm = 1;
  if (options.activations == ElementType::bfloat16 && seed % 2 == 0) {
    options.activations = ElementType::float16;
    options.update_options.loss_scaling = LossScaling{};
  }
  options.accumulates = seed % 3 == 0;
  if (dice(0, 1) == 0) options.largest_overhead = 1;
  const auto kind = static_cast<StepKind>(std::min<Index>(dice(0, 3), 2));
  if (saves && other(0, 1) == 0)
    options.recompute = random_recomputation(other, static_cast<int>(c.network.layers.size()));
  if (saves && other(0, 2) == 0) options.offload = random_offloading(other, static_cast<int>(c.network.layers.size()));
  for (int r = 0; r < ranks; ++r) c.plans.push_back(plan_step(c.network, c.layers, r, kind, machine, options));
  return c;
}

std::string text_of(const Case& c) {
  std::string text;
  for (const LayerDescription& layer : c.network.layers) text += to_string(layer) + '\n';
  return text + std::to_string(c.plans.size()) + " ranks";
}

/// What the cases of a test had at least once.
struct Coverage {
  std::set<std::size_t> ranks, layers_on_several_ranks, work;
  std::set<StepKind> kinds;
  std::set<StatisticsScope> scopes;
  std::set<std::size_t> repeated_work, repeated_layers;
  int several_readers = 0, adopted_inputs = 0, several_grids = 0;

  void add(const Case& c) {
    ranks.insert(c.plans.size());
    kinds.insert(c.plans[0].kind);
    for (const LayerDescription& layer : c.network.layers) {
      if (c.plans.size() > 1) layers_on_several_ranks.insert(layer.operation.index());
      if (const auto* norm = std::get_if<BatchNorm>(&layer.operation)) scopes.insert(norm->scope);
    }
    for (const StepPlan& plan : c.plans)
      for (const PlanNode& node : plan.nodes) {
        work.insert(node.work.index());
        if (node.repeats < 0) continue;
        repeated_work.insert(node.work.index());
        repeated_layers.insert(c.network.layers[static_cast<std::size_t>(node.layer)].operation.index());
      }
    const auto several = [](const auto& readers) { return readers.size() > 1; };
    several_readers += std::ranges::any_of(c.layers.readers, several) ? 1 : 0;
    adopted_inputs += c.layers.input_is_adopted ? 1 : 0;
    const auto differs = [&](const LayerPlan& l) { return l.output.grid() != c.layers.layers[0].output.grid(); };
    several_grids += std::ranges::any_of(c.layers.layers, differs) ? 1 : 0;
  }
};

TEST(Verify, StepsOfRandomNetworksAreRight) {
  constexpr int cases = 3000;
  Coverage coverage;
  for (int i = 0; i < aloni::test::random_cases(cases); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 64);
    ASSERT_EQ(c.plans.size(), static_cast<std::size_t>(c.layers.input.ranks()));  // all ranks
    coverage.add(c);
    const auto fault = verify(c.layers, c.plans);
    ASSERT_FALSE(fault) << "case " << i << '\n' << text_of(c) << '\n' << to_string(*fault);
  }
  if (aloni::test::random_cases(cases) < cases) return;
  EXPECT_EQ(coverage.ranks.size(), 64u);  // 1 to 64
  EXPECT_EQ(*coverage.ranks.rbegin(), 64u);
  EXPECT_EQ(coverage.layers_on_several_ranks.size(), std::variant_size_v<Operation>);
  EXPECT_EQ(coverage.work.size(), std::variant_size_v<Work>);
  EXPECT_EQ(coverage.kinds.size(), 3u);
  EXPECT_EQ(coverage.scopes.size(), 4u);
  // Convolutions, their weights, biases and rounding; pooling, resampling, normalisation, dense, pointwise, dropout;
  // transfers. All layers but means over pixels.
  EXPECT_GE(coverage.repeated_work.size(), 11u);
  EXPECT_EQ(coverage.repeated_layers.size(), std::variant_size_v<Operation> - 1);
  EXPECT_GT(coverage.several_readers, 300);
  EXPECT_GT(coverage.adopted_inputs, 300);
  EXPECT_GT(coverage.several_grids, 300);
}

/// The plans of a Network on one rank: training, with or without the update, and inference, in one memory.
struct NetworkPlans {
  NetworkPlans(const NetworkDescription& network, const NetworkPlan& layers, int rank,
               const MachineDescription& machine, bool update = false)
      : training(plan_step(network, layers, rank, StepKind::training, machine, {.update = update})),
        inference(plan_step(network, layers, rank, StepKind::inference, machine, {.update = update})),
        layout(lay_out_memory({&training, &inference}, machine)) {}

  StepPlan training, inference;
  MemoryLayout layout;

  bool has_own_memory(const std::string& name) const {
    for (const StepPlan* plan : {&training, &inference})
      for (const PlanBuffer& b : plan->buffers)
        if (b.name == name && nn::has_own_memory(b)) return true;
    return false;
  }
  std::optional<std::string> fault(const MemoryLayout& places, std::uint64_t seed) const {
    for (const StepPlan* plan : {&training, &inference}) {
      for (const PlanBuffer& b : plan->buffers) {
        if (b.alias != no_buffer || has_own_memory(b.name)) continue;
        const auto place = places.places.find(b.name);
        if (place == places.places.end()) return b.name + " has no place";
        const auto& [memory, offset, bytes, segment] = place->second;
        const Index end = segment >= 0 ? training.gradient_memory.at(static_cast<std::size_t>(segment)).bytes
                                       : places.bytes_of(memory);
        if (bytes < b.bytes()) return "the place of " + b.name + " is too small";
        if (offset + bytes > end) return b.name + " is outside";
      }
      if (const auto found = find_overwritten(*plan, places, {.seed = seed})) return found;
    }
    return std::nullopt;
  }
};

TEST(Verify, NoLayoutOfARandomNetworkOverwritesWhatIsStillNeeded) {
  for (int i = 0; i < aloni::test::random_cases(600); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 16);
    const MachineDescription machine = machine_of_nodes(static_cast<int>(c.plans.size()), i % 4);
    for (const StepPlan& plan : c.plans) {
      const MemoryLayout layout = lay_out_memory({&plan}, machine);
      const auto fault = find_overwritten(plan, layout, {.seed = static_cast<std::uint64_t>(i % 3)});
      ASSERT_FALSE(fault) << "case " << i << ", rank " << plan.rank << '\n' << text_of(c) << '\n' << *fault;
      for (const bool update : {false, true}) {
        const NetworkPlans both(c.network, c.layers, plan.rank, machine, update);
        const auto of_both = both.fault(both.layout, static_cast<std::uint64_t>(i % 3));
        ASSERT_FALSE(of_both) << "case " << i << ", rank " << plan.rank << '\n' << text_of(c) << '\n' << *of_both;
      }
    }
  }
}

/// Buffers that lie in the memory of the gradients of parameters.
int count_in_gradients(const MemoryLayout& layout) {
  return static_cast<int>(std::ranges::count_if(layout.places, [](const auto& named) {
    return named.second.segment >= 0 && !named.first.ends_with(".gradient");
  }));
}

TEST(Verify, OnlyStepsWithAnUpdateLendTheMemoryOfTheirGradients) {
  int lent = 0;
  for (int i = 0; i < aloni::test::random_cases(100); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 4);
    const NetworkPlans without(c.network, c.layers, 0, {});
    ASSERT_EQ(count_in_gradients(without.layout), 0);
    NetworkPlans with(c.network, c.layers, 0, {}, true);
    if (count_in_gradients(with.layout) > 0) ++lent;
    ASSERT_LE(with.layout.bytes(), without.layout.bytes()) << text_of(c);
    // Other ranks read a shared buffer, so it needs gradients in shared memory.
    const MachineDescription node = machine_of_nodes(static_cast<int>(c.plans.size()), 0);
    NetworkPlans on_node(c.network, c.layers, 0, node, true);
    for (GradientMemory& segment : on_node.training.gradient_memory) segment.shared = false;
    const MemoryLayout separate = lay_out_memory({&on_node.training, &on_node.inference}, node);
    for (const auto& [name, place] : separate.places)
      ASSERT_FALSE(place.memory == MemoryKind::shared && place.segment >= 0) << name;
  }
  EXPECT_GT(lent, 10);
}

/// A Network makes its plan with late gradients after its memory, which has the layout of the other two plans.
TEST(Verify, AStepWithLateGradientsRunsInTheMemoryOfATrainingStep) {
  for (int i = 0; i < aloni::test::random_cases(150); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 8);
    const MachineDescription machine = machine_of_nodes(static_cast<int>(c.plans.size()), i % 4);
    Dice dice(static_cast<std::uint64_t>(i));
    const Offloading offload = random_offloading(dice, static_cast<int>(c.network.layers.size()));
    for (int rank = 0; rank < static_cast<int>(c.plans.size()); ++rank) {
      const auto planned = [&](StepKind kind, GradientSums sums) {
        return plan_step(
            c.network, c.layers, rank, kind, machine,
            {.split_parameters = false, .sums = sums, .update = false, .offload = i % 2 == 0 ? offload : Offloading{}});
      };
      const StepPlan training = planned(StepKind::training, GradientSums::beside_backward);
      const StepPlan inference = planned(StepKind::inference, GradientSums::beside_backward);
      const StepPlan late = planned(StepKind::training, GradientSums::partial);
      ASSERT_TRUE(std::ranges::equal(late.buffers, training.buffers, {}, &PlanBuffer::name, &PlanBuffer::name));
      ASSERT_TRUE(std::ranges::equal(late.buffers, training.buffers, {}, &PlanBuffer::box, &PlanBuffer::box));
      const auto fault = find_overwritten(late, lay_out_memory({&training, &inference}, machine),
                                          {.seed = static_cast<std::uint64_t>(i % 3)});
      ASSERT_FALSE(fault) << "case " << i << ", rank " << rank << '\n' << text_of(c) << '\n' << *fault;
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

/// Calls f with layouts in which b lies in the place of a, although b is written while the value of a is needed.
void for_wrong_places(const StepPlan& plan, const MemoryLayout& layout,
                      const std::function<void(const MemoryLayout&)>& f) {
  const std::vector<Uses> uses = uses_of(plan);
  for (std::size_t a = 0; a < plan.buffers.size(); ++a) {
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const auto place_a = layout.places.find(plan.buffers[a].name), place_b = layout.places.find(plan.buffers[b].name);
      if (a == b || place_a == layout.places.end() || place_b == layout.places.end()) continue;
      if (place_a->second.bytes == 0 || place_b->second.bytes == 0) continue;
      if (uses[a].writes.empty() || uses[a].reads.empty() || uses[b].writes.empty()) continue;
      // b is written when a is complete, and a is read after that: by a node that depends on b.
      const int written = uses[b].writes.front();
      if (uses[a].writes.back() >= written || uses[a].reads.back() <= written) continue;
      if (std::ranges::find(uses[b].reads, uses[a].reads.back()) == uses[b].reads.end()) continue;
      MemoryLayout wrong = layout;
      wrong.places[plan.buffers[b].name].offset = place_a->second.offset;
      wrong.places[plan.buffers[b].name].memory = place_a->second.memory;
      wrong.places[plan.buffers[b].name].segment = place_a->second.segment;
      f(wrong);
    }
  }
}

TEST(Verify, LayoutsWithABufferInTheWrongPlaceAreRefused) {
  int refused = 0, changed = 0;
  for (int i = 0; i < 100; ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 4);
    for_wrong_places(c.plans[0], lay_out_memory({&c.plans[0]}, {}), [&](const MemoryLayout& wrong) {
      ++changed;
      if (find_overwritten(c.plans[0], wrong)) ++refused;
    });
  }
  EXPECT_GT(changed, 40);
  EXPECT_EQ(refused, changed);
}

/// Moves a buffer into the place of a gradient of parameters that is needed then.
TEST(Verify, BuffersInThePlaceOfANeededGradientAreRefused) {
  int refused = 0, changed = 0;
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 4);
    const NetworkPlans plans(c.network, c.layers, 0, {}, true);
    for_wrong_places(plans.training, plans.layout, [&](const MemoryLayout& wrong) {
      if (count_in_gradients(wrong) == count_in_gradients(plans.layout)) return;
      ++changed;
      if (plans.fault(wrong, 0)) ++refused;
    });
  }
  EXPECT_GT(changed, 10);
  EXPECT_EQ(refused, changed);
}

TEST(Verify, LayoutsOfTwoPlansThatAreWrongForOneAreRefused) {
  int refused = 0, changed = 0, forgotten = 0;
  for (int i = 0; i < 100; ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 4);
    const NetworkPlans plans(c.network, c.layers, 0, {});
    for (const StepPlan* plan : {&plans.training, &plans.inference}) {
      for_wrong_places(*plan, plans.layout, [&](const MemoryLayout& wrong) {
        ++changed;
        if (plans.fault(wrong, 0)) ++refused;
      });
      // A layout for one plan alone: the other has buffers without a place, or in places that are too small.
      const MemoryLayout alone = lay_out_memory({plan}, {});
      if (alone.places.size() < plans.layout.places.size() && plans.fault(alone, 0)) ++forgotten;
    }
  }
  EXPECT_GT(changed, 60);
  EXPECT_EQ(refused, changed);
  EXPECT_GT(forgotten, 20);
}

// --- deliberate faults ---

/// Changes plans of a case. Returns whether there was something to change. `dice` chooses rank and node.
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

// --- the same change on all ranks: no two ranks disagree ---

using IsSum = std::function<bool(const PlanNode&, const ReductionWork&)>;

/// The number of a communication that one rank has and the condition holds for; -1: there is none.
int any_sum(Case& c, Dice& dice, const IsSum& wanted) {
  std::vector<int> numbers;
  for (const PlanNode& n : any_plan(c, dice).nodes)
    if (const auto* w = std::get_if<ReductionWork>(&n.work); w && wanted(n, *w)) numbers.push_back(n.communication);
  return numbers.empty() ? -1 : pick(numbers, dice);
}

Change drop_on_all_ranks(const IsSum& wanted) {
  return [wanted](Case& c, Dice& dice) {
    const int number = any_sum(c, dice, wanted);
    if (number < 0) return false;
    for (StepPlan& plan : c.plans)
      std::erase_if(plan.nodes, [&](const PlanNode& n) { return n.communication == number; });
    return true;
  };
}

/// The last member of a sum no longer takes part, and the others agree.
Change leave_one_out(const IsSum& wanted) {
  return [wanted](Case& c, Dice& dice) {
    const int number =
        any_sum(c, dice, [&](const auto& n, const auto& w) { return w.members.size() > 2 && wanted(n, w); });
    if (number < 0) return false;
    int left_out = -1;
    for (StepPlan& plan : c.plans) {
      std::erase_if(plan.nodes, [&](PlanNode& n) {
        if (n.communication != number) return false;
        auto& members = std::get<ReductionWork>(n.work).members;
        if (left_out < 0) left_out = members.back();
        std::erase(members, left_out);
        return plan.rank == left_out;
      });
    }
    return true;
  };
}

template <class W>
Change change_on_all_ranks(std::function<bool(W&)> work) {
  return [work](Case& c, Dice& dice) {
    auto nodes = nodes_of<W>(any_plan(c, dice));
    if (nodes.empty()) return false;
    bool changed = false;
    for (StepPlan& plan : c.plans)
      for (const std::size_t n : nodes_of<W>(plan)) changed = work(std::get<W>(plan.nodes[n].work)) || changed;
    return changed;
  };
}

bool sums_a_layer(const PlanNode& n, const ReductionWork& w, StepPhase phase) {
  return n.phase == phase && w.segment < 0 && n.layer >= 0;
}

template <class W>
bool belongs_to(const Case& c, const PlanNode& sum) {
  return std::ranges::any_of(
      c.plans[0].nodes, [&](const PlanNode& n) { return n.layer == sum.layer && std::holds_alternative<W>(n.work); });
}

/// A sum over ranks of a layer with work W.
template <class W>
Change with_sums_of(StepPhase phase, Change (*change)(const IsSum&)) {
  return [phase, change](Case& c, Dice& dice) {
    return change([&c, phase](const PlanNode& n, const ReductionWork& w) {
      return sums_a_layer(n, w, phase) && belongs_to<W>(c, n);
    })(c, dice);
  };
}

/// A transfer of partial sums in which the rank sends some to their owner; null: there is none.
PlanNode* transfer_of_partial_sums(StepPlan& plan, Dice& dice) {
  std::vector<PlanNode*> found;
  for (PlanNode& n : plan.nodes) {
    const auto* w = std::get_if<TransferWork>(&n.work);
    if (!w || w->items.empty() || w->items[0].plan.receives.empty()) continue;
    const PlanBuffer& sums = plan.buffers[static_cast<std::size_t>(w->items[0].destination)];
    if (w->adjoint && sums.role == BufferRole::partial_sums) found.push_back(&n);
  }
  return found.empty() ? nullptr : pick(found, dice);
}

/// Of the other rank of a message: the plan of the same transfer.
halo::TransferPlan& transfer_of(Case& c, int rank, int communication) {
  auto& nodes = c.plans[static_cast<std::size_t>(rank)].nodes;
  const auto found = std::ranges::find(nodes, communication, &PlanNode::communication);
  return std::get<TransferWork>(found->work).items[0].plan;
}

/// Two communications with a common partner, which change places on one rank.
Change swap_communication(bool with_sum) {
  return [with_sum](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const auto has = [](const PlanNode& n, int peer) {
      if (const auto* sum = std::get_if<ReductionWork>(&n.work)) return std::ranges::count(sum->members, peer) > 0;
      for (const TransferItemPlan& item : std::get<TransferWork>(n.work).items)
        for (const auto* messages : {&item.plan.sends, &item.plan.receives})
          if (std::ranges::find(*messages, peer, &halo::Message::peer) != messages->end()) return true;
      return false;
    };
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t a = 0; a < plan.nodes.size(); ++a) {
      for (std::size_t b = a + 1; b < plan.nodes.size(); ++b) {
        const NodeKind first = plan.nodes[a].kind(), second = plan.nodes[b].kind();
        if (first == NodeKind::kernel || second == NodeKind::kernel) continue;
        if (with_sum != (first != second)) continue;
        for (int peer = 0; peer < plan.ranks; ++peer)
          if (peer != plan.rank && has(plan.nodes[a], peer) && has(plan.nodes[b], peer)) pairs.emplace_back(a, b);
      }
    }
    if (pairs.empty()) return false;
    const auto [a, b] = pick(pairs, dice);
    std::swap(plan.nodes[a], plan.nodes[b]);
    return true;
  };
}

std::map<std::string, Change> faults() {
  std::map<std::string, Change> all;
  all["a forward convolution is dropped"] =
      drop<ConvolutionWork>([](const auto& w) { return !w.backward && !w.region.empty(); });
  all["a backward-data convolution is dropped"] =
      drop<ConvolutionWork>([](const auto& w) { return w.backward && !w.region.empty(); });
  all["a gradient of filters is dropped"] =
      drop<FilterGradientWork>([](const auto& w) { return !w.calls.empty() && w.calls[0].computes; });
  all["a gradient of a bias is dropped"] = drop<BiasGradientWork>([](const auto& w) { return w.contributes; });
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
  all["a normalisation forgets the sum behind it"] = change<NormalisationWork>([](NormalisationWork& w, Dice&) {
    if (w.summand == no_buffer || w.region.empty() || w.stage != NormalisationStage::forward) return false;
    w.summand = no_buffer;
    w.sum_relu = false;
    return true;
  });
  all["the gradient of a sum is added twice"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    std::vector<std::size_t> nodes;
    for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
      const PlanNode& node = plan.nodes[n];
      const auto* work = std::get_if<PointwiseWork>(&node.work);
      if (!work || work->function != PointwiseFunction::add || node.phase != StepPhase::backward || node.repeats >= 0)
        continue;
      for (std::size_t i = 0; i < plan.gradients.size(); ++i)
        if (c.layers.layers[i].passes_gradient_on && work->inputs[1].buffer == plan.gradients[i]) nodes.push_back(n);
    }
    if (nodes.empty()) return false;
    const auto twice = plan.nodes.begin() + static_cast<std::ptrdiff_t>(pick(nodes, dice));
    plan.nodes.insert(twice, PlanNode(*twice));
    return true;
  };
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
  all["metrics are dropped"] = drop<MetricsWork>();
  all["metrics count samples that another rank counts"] = change<MetricsWork>([](MetricsWork& w, Dice&) {
    w.is_first_copy = !w.is_first_copy;
    return true;
  });
  all["metrics are those of fewer pixels"] =
      change<MetricsWork>([](MetricsWork& w, Dice& dice) { return shrink(w.region, dice); });
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
  all["no implementation of a kernel is chosen"] = change<FilterGradientWork>([](FilterGradientWork& w, Dice&) {
    if (w.calls.empty() || !w.calls[0].computes) return false;
    w.calls[0].backend = local::ConvolutionBackend::automatic;
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
  all["a pooling leaves out the ReLU before it"] = change<PoolingWork>([](PoolingWork& w, Dice&) {
    if (!w.relu) return false;
    w.relu = false;
    return true;
  });
  all["a ReLU before a pooling has no node"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    if (plan.pooled_relus.empty()) return false;
    plan.pooled_relus.clear();
    return std::ranges::any_of(plan.nodes, [](const PlanNode& n) {
      const auto* const pooling = std::get_if<PoolingWork>(&n.work);
      return pooling && pooling->relu;
    });
  };
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
    w.type = w.type == ElementType::float64 ? ElementType::float32 : ElementType::float64;
    return true;
  });
  all["a sum over ranks has another type on all ranks"] = [](Case& c, Dice& dice) {
    const int number =
        any_sum(c, dice, [](const auto&, const ReductionWork& w) { return w.segment < 0 || !w.with_loss; });
    for (StepPlan& plan : c.plans)
      for (PlanNode& n : plan.nodes)
        if (n.communication == number && number >= 0) std::get<ReductionWork>(n.work).type = ElementType::int32;
    return number >= 0;
  };
  all["a sum over ranks has another algorithm on one rank"] = change<ReductionWork>([](ReductionWork& w, Dice&) {
    w.plan.algorithm = comm::AllReduceAlgorithm::ring;
    return true;
  });
  all["a sum over ranks has other parts on one rank"] = change<ReductionWork>([](ReductionWork& w, Dice&) {
    w.plan.part_elements /= 2;
    return true;
  });
  all["one rank adds only contributions in time"] = change<ReductionWork>([](ReductionWork& w, Dice&) {
    w.partial = !w.partial;
    return w.segment == 0;
  });
  all["a partial all-reduce sums a part of the gradients"] = change_on_all_ranks<ReductionWork>([](ReductionWork& w) {
    w.partial = w.first > 0;
    return w.partial;
  });
  all["a sum over ranks has no algorithm"] = change_on_all_ranks<ReductionWork>([](ReductionWork& w) {
    w.plan = {};
    return true;
  });
  all["gradients are not accumulated"] =
      drop<AccumulationWork>([](const AccumulationWork& w) { return !w.gradients.empty(); });
  const auto accumulation = [](const std::function<bool(AccumulationWork&)>& f) {
    return change<AccumulationWork>([f](AccumulationWork& w, Dice&) { return !w.gradients.empty() && f(w); });
  };
  all["a gradient is not accumulated"] = accumulation([](AccumulationWork& w) {
    w.gradients.pop_back();
    w.sums.pop_back();
    return true;
  });
  all["a gradient is accumulated twice"] = accumulation([](AccumulationWork& w) {
    w.gradients.push_back(BufferId(w.gradients[0]));
    w.sums.push_back(BufferId(w.sums[0]));
    return true;
  });
  all["a gradient is accumulated in the sum of another one"] = accumulation([](AccumulationWork& w) {
    if (w.sums.size() < 2) return false;
    std::swap(w.sums[0], w.sums[1]);
    return true;
  });
  all["a gradient has no sum over micro-batches"] = accumulation([](AccumulationWork& w) {
    w.sums.pop_back();
    return true;
  });
  all["elements of gradients are not accumulated"] = accumulation([](AccumulationWork& w) {
    --w.elements;
    return true;
  });
  // Moves a node of accumulation to the begin, or to the end.
  const auto accumulate_at = [](bool begin) {
    return [begin](Case& c, Dice& dice) {
      StepPlan& plan = any_plan(c, dice);
      const auto nodes = nodes_of<AccumulationWork>(plan, [](const auto& w) { return !w.gradients.empty(); });
      if (nodes.empty() || plan.nodes[nodes[0]].reads.empty()) return false;
      if (!begin && !plan.update && c.plans.size() < 2) return false;
      const auto node = plan.nodes.begin() + static_cast<std::ptrdiff_t>(nodes[0]);
      if (begin) {
        std::rotate(plan.nodes.begin(), node, node + 1);
      } else {
        std::rotate(node, node + 1, plan.nodes.end());
      }
      return true;
    };
  };
  all["gradients are accumulated before they are computed"] = accumulate_at(true);
  all["gradients are accumulated behind their sum or update"] = accumulate_at(false);
  all["a step without micro-batches accumulates"] = [](Case& c, Dice&) {
    if (nodes_of<AccumulationWork>(c.plans[0]).empty()) return false;
    for (StepPlan& plan : c.plans) plan.accumulates = false;
    return true;
  };
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
  all["the parameters are updated before their gradients are computed"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const auto updates = nodes_of<OptimiserWork>(plan, [](const auto& w) { return w.segment == 0; });
    if (updates.empty() || plan.nodes[updates[0]].reads.empty()) return false;
    const auto update = plan.nodes.begin() + static_cast<std::ptrdiff_t>(updates[0]);
    std::rotate(plan.nodes.begin(), update, update + 1);
    return true;
  };
  all["a segment is not updated"] = drop<OptimiserWork>([](const auto& w) { return !w.tensors.empty(); });
  const auto tensor = [](const std::function<bool(OptimiserWork&, UpdatedTensor&, Dice&)>& f) {
    return change<OptimiserWork>(
        [f](OptimiserWork& w, Dice& dice) { return !w.tensors.empty() && f(w, pick(w.tensors, dice), dice); });
  };
  all["a parameter is not updated"] = tensor([](OptimiserWork& w, UpdatedTensor&, Dice&) {
    w.tensors.pop_back();
    return true;
  });
  all["a parameter is updated twice"] = tensor([](OptimiserWork& w, UpdatedTensor& t, Dice&) {
    w.tensors.push_back(UpdatedTensor(t));
    return true;
  });
  all["a segment is updated twice"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const auto updates = nodes_of<OptimiserWork>(plan, [](const auto& w) { return !w.tensors.empty(); });
    if (updates.empty()) return false;
    plan.nodes.push_back(PlanNode(plan.nodes[updates[0]]));
    return true;
  };
  all["a parameter is updated with the gradient of another one"] = tensor([](OptimiserWork& w, UpdatedTensor&, Dice&) {
    if (w.tensors.size() < 2) return false;
    std::swap(w.tensors[0].gradient, w.tensors[1].gradient);
    return true;
  });
  all["a parameter is updated with the state of another one"] = tensor([](OptimiserWork& w, UpdatedTensor&, Dice&) {
    if (w.tensors.size() < 2) return false;
    std::swap(w.tensors[0].states, w.tensors[1].states);
    return true;
  });
  all["an update lacks a state"] = tensor([](OptimiserWork&, UpdatedTensor& t, Dice&) {
    t.states.pop_back();
    return true;
  });
  all["an update has another optimiser"] = tensor([](OptimiserWork& w, UpdatedTensor&, Dice&) {
    w.kind = w.kind == OptimiserKind::sgd ? OptimiserKind::adam : OptimiserKind::sgd;
    return true;
  });
  const auto squares = [](const NormWork& w) { return w.stage == NormStage::squares && !w.tensors.empty(); };
  all["the squares of a segment are not summed"] = drop<NormWork>(squares);
  all["the squares of a tensor are not summed"] = change<NormWork>([squares](NormWork& w, Dice&) {
    if (!squares(w)) return false;
    w.tensors.pop_back();
    return true;
  });
  all["the squares of a tensor are summed twice"] = change<NormWork>([squares](NormWork& w, Dice&) {
    if (!squares(w)) return false;
    w.tensors.push_back(UpdatedTensor(w.tensors[0]));
    return true;
  });
  all["the factors of an update are not found"] =
      drop<NormWork>([](const NormWork& w) { return w.stage == NormStage::factors; });
  all["an update ignores its factors"] = change<OptimiserWork>([](OptimiserWork& w, Dice&) {
    if (w.factors == no_buffer) return false;
    w.factors = no_buffer;
    return true;
  });
  all["a block of squares is counted by another number of ranks"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    auto nodes = nodes_of<NormWork>(plan, [](const auto& w) { return w.blocks > 1; });
    if (nodes.empty()) return false;
    bool& is_first_copy = std::get<NormWork>(plan.nodes[pick(nodes, dice)].work).is_first_copy;
    is_first_copy = !is_first_copy;
    return true;
  };
  all["no rank adds the squares of split tensors"] = [](Case& c, Dice&) {
    bool found = false;
    for (StepPlan& plan : c.plans) {
      for (const std::size_t n : nodes_of<ReductionWork>(plan)) {
        const auto& sum = std::get<ReductionWork>(plan.nodes[n].work);
        if (plan.buffers[static_cast<std::size_t>(sum.buffers[0])].name != "update.norm_block_sums") continue;
        plan.nodes.erase(plan.nodes.begin() + static_cast<std::ptrdiff_t>(n));
        found = true;
        break;
      }
    }
    return found;
  };
  all["a step without an optimiser updates"] = [](Case& c, Dice&) {
    if (!c.plans[0].update || nodes_of<OptimiserWork>(c.plans[0]).empty()) return false;
    for (StepPlan& plan : c.plans) plan.update.reset();
    return true;
  };
  all["a rank has another optimiser"] = [](Case& c, Dice& dice) {
    if (c.plans.size() < 2 || !c.plans[0].update) return false;
    any_plan(c, dice).update.reset();
    return true;
  };
  all["an update names less than it changes"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const auto updates = nodes_of<OptimiserWork>(plan, [](const auto& w) { return !w.tensors.empty(); });
    if (updates.empty() || plan.nodes[updates[0]].writes.empty()) return false;
    auto& writes = plan.nodes[updates[0]].writes;
    writes.erase(writes.begin() + dice(0, static_cast<Index>(writes.size()) - 1));
    return true;
  };
  all["a parameter is read after its update"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const auto readers = nodes_of<WeightsWork>(plan);
    if (!plan.update || readers.empty()) return false;
    plan.nodes.push_back(PlanNode(plan.nodes[readers.back()]));
    return true;
  };
  all["the weights of a convolution are not made ready"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    std::vector<std::size_t> needed;
    for (const std::size_t w : nodes_of<WeightsWork>(plan)) {
      const PlanNode& ready = plan.nodes[w];
      for (const std::size_t k : nodes_of<ConvolutionWork>(plan))
        if (plan.nodes[k].layer == ready.layer && plan.nodes[k].phase == ready.phase && !ready.writes.empty()) {
          needed.push_back(w);
          break;
        }
    }
    if (needed.empty()) return false;
    plan.nodes.erase(plan.nodes.begin() + static_cast<std::ptrdiff_t>(pick(needed, dice)));
    return true;
  };
  all["the weights of another convolution are made ready"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    if (plan.convolution_weights.size() < 2) return false;
    auto nodes = nodes_of<WeightsWork>(plan);
    if (nodes.empty()) return false;
    auto& work = std::get<WeightsWork>(plan.nodes[pick(nodes, dice)].work);
    const int other = work.weights == 0 ? 1 : 0;
    const BufferId filters = plan.convolution_weights[static_cast<std::size_t>(other)].filters;
    if (plan.buffers[static_cast<std::size_t>(filters)].box.empty()) return false;
    work.weights = other;
    return true;
  };
  all["statistics that a kernel keeps are not written"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    const std::vector<Uses> uses = uses_of(plan);
    std::vector<BufferId> kept;
    for (const std::size_t n : nodes_of<NormalisationWork>(plan)) {
      const BufferId b = std::get<NormalisationWork>(plan.nodes[n].work).statistics;
      if (b == no_buffer) continue;
      const Uses& u = uses[static_cast<std::size_t>(b)];
      if (plan.buffers[static_cast<std::size_t>(b)].by_kernels && !u.reads.empty()) kept.push_back(b);
    }
    if (kept.empty()) return false;
    const BufferId b = pick(kept, dice);
    for (PlanNode& n : plan.nodes) std::erase_if(n.writes, [&](const PlanRegion& r) { return r.buffer == b; });
    return true;
  };

  all["no rank adds the sums of a normalisation"] =
      with_sums_of<NormalisationWork>(StepPhase::forward, drop_on_all_ranks);
  all["no rank adds the sums of the gradient of a normalisation"] =
      with_sums_of<NormalisationWork>(StepPhase::backward, drop_on_all_ranks);
  all["no rank adds the sums of a mean"] = with_sums_of<GlobalAverageWork>(StepPhase::forward, drop_on_all_ranks);
  all["the sums of a normalisation leave a rank out"] =
      with_sums_of<NormalisationWork>(StepPhase::forward, leave_one_out);
  all["the sums of the gradient of a normalisation leave a rank out"] =
      with_sums_of<NormalisationWork>(StepPhase::backward, leave_one_out);
  all["the sums of a mean leave a rank out"] = with_sums_of<GlobalAverageWork>(StepPhase::forward, leave_one_out);
  all["no rank adds the metrics"] = [](Case& c, Dice&) {
    if (c.plans.size() < 2 || nodes_of<MetricsWork>(c.plans[0]).empty()) return false;
    for (StepPlan& plan : c.plans) {
      const BufferId metrics = plan.find("metrics");
      std::erase_if(plan.nodes, [metrics](const PlanNode& n) {
        const auto* w = std::get_if<ReductionWork>(&n.work);
        return w && w->buffers == std::vector{metrics};
      });
    }
    return true;
  };
  all["no rank adds the loss"] = [](Case& c, Dice& dice) {
    if (c.plans.size() < 2 || c.plans[0].kind == StepKind::gradients) return false;
    (void)dice;
    for (StepPlan& plan : c.plans) {
      std::erase_if(plan.nodes, [](const PlanNode& n) {
        const auto* w = std::get_if<ReductionWork>(&n.work);
        return w && n.phase == StepPhase::loss && n.label == "loss: sums over ranks" && w->elements == 2;
      });
      const BufferId loss = plan.find("loss");
      for (const std::size_t n : nodes_of<ReductionWork>(plan)) {
        auto& work = std::get<ReductionWork>(plan.nodes[n].work);
        if (!work.with_loss) continue;
        work.with_loss = false;
        work.elements -= 2;
        std::erase(work.buffers, loss);
        for (auto* regions : {&plan.nodes[n].reads, &plan.nodes[n].writes})
          std::erase_if(*regions, [&](const PlanRegion& r) { return r.buffer == loss; });
      }
    }
    return true;
  };
  all["no rank adds the sums of a loss"] =
      drop_on_all_ranks([](const PlanNode& n, const auto& w) { return n.phase == StepPhase::loss && w.elements == 4; });
  all["no rank adds gradients"] =
      drop_on_all_ranks([](const auto&, const auto& w) { return w.segment >= 0 && !w.with_loss; });
  all["the sums of gradients leave a rank out"] =
      leave_one_out([](const auto&, const ReductionWork& w) { return w.segment >= 0 && !w.with_loss; });
  all["a mean is over another number of elements"] = change_on_all_ranks<NormalisationWork>([](NormalisationWork& w) {
    const bool counts = w.kind != NormalisationKind::layer && w.trains && !w.region.empty();
    ++w.count;
    return counts && (w.stage == NormalisationStage::forward || w.stage == NormalisationStage::backward);
  });
  all["statistics are taken over other ranks"] = [](Case& c, Dice& dice) {
    const int number = any_sum(c, dice, [&](const PlanNode& n, const ReductionWork& w) {
      return sums_a_layer(n, w, StepPhase::forward) && belongs_to<NormalisationWork>(c, n);
    });
    if (number < 0) return false;
    bool changed = false;
    for (StepPlan& plan : c.plans)
      for (const std::size_t n : nodes_of<NormalisationWork>(plan)) {
        auto& w = std::get<NormalisationWork>(plan.nodes[n].work);
        if (w.kind != NormalisationKind::batch || w.region.empty()) continue;
        for (const PlanNode& sum : plan.nodes)
          changed = changed || (sum.layer == plan.nodes[n].layer && sum.communication == number);
        w.scope = StatisticsScope::local;
      }
    return changed;
  };
  all["a normalisation computes one row too few"] = change<NormalisationWork>(
      [](NormalisationWork& w, Dice& dice) { return !w.region.empty() && shrink(w.region, dice); });
  all["a mean is over another number of pixels"] = change<GlobalAverageWork>([](GlobalAverageWork& w, Dice&) {
    w.scale /= 2;
    return true;
  });
  all["a mean sums one row too few"] = change<GlobalAverageWork>(
      [](GlobalAverageWork& w, Dice& dice) { return w.stage == GlobalAverageStage::sums && shrink(w.from, dice); });

  all["partial sums do not reach their owner"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    PlanNode* const n = transfer_of_partial_sums(plan, dice);
    if (!n) return false;
    auto& receives = std::get<TransferWork>(n->work).items[0].plan.receives;  // sent, as the transfer runs backwards
    std::erase_if(transfer_of(c, receives.back().peer, n->communication).sends,
                  [&](const halo::Message& m) { return m.peer == plan.rank; });
    receives.pop_back();
    return true;
  };
  all["a rank computes no partial sums"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    PlanNode* const n = transfer_of_partial_sums(plan, dice);
    if (!n) return false;
    TransferItemPlan& item = std::get<TransferWork>(n->work).items[0];
    for (const halo::Message& m : item.plan.receives)
      std::erase_if(transfer_of(c, m.peer, n->communication).sends,
                    [&](const halo::Message& sent) { return sent.peer == plan.rank; });
    item.plan.receives.clear();
    item.plan.local.clear();
    n->reads.clear();
    for (const std::size_t k : nodes_of<ConvolutionWork>(plan)) {
      if (std::get<ConvolutionWork>(plan.nodes[k].work).target != item.destination) continue;
      plan.nodes.erase(plan.nodes.begin() + static_cast<std::ptrdiff_t>(k));
      break;
    }
    return true;
  };
  all["partial sums are added twice"] = [](Case& c, Dice& dice) {
    PlanNode* const n = transfer_of_partial_sums(any_plan(c, dice), dice);
    if (!n) return false;
    auto& plan = std::get<TransferWork>(n->work).items[0].plan;
    if (plan.local.empty()) return false;
    plan.local.push_back(plan.local[0]);
    return true;
  };
  all["a rank multiplies the channels of another one"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    PlanNode* const n = transfer_of_partial_sums(plan, dice);
    if (!n) return false;
    const BufferId sums = std::get<TransferWork>(n->work).items[0].destination;
    for (const std::size_t k : nodes_of<ConvolutionWork>(plan)) {
      auto& work = std::get<ConvolutionWork>(plan.nodes[k].work);
      if (work.target != sums || work.calls.empty()) continue;
      work.calls.push_back(work.calls[0]);
      return true;
    }
    return false;
  };

  all["two exchanges change places on one rank"] = swap_communication(false);
  all["an exchange and a sum change places on one rank"] = swap_communication(true);
  all["a message comes from a rank that does not exist"] = message(false, [](auto&, halo::Message& m, Dice&) {
    m.peer = 1000;
    return true;
  });
  all["a message has another type"] = [message](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    for (const std::size_t n : nodes_of<TransferWork>(plan)) {
      TransferItemPlan* const item = item_with_messages(std::get<TransferWork>(plan.nodes[n].work), true);
      if (!item) continue;
      ElementType& type = plan.buffers[static_cast<std::size_t>(item->source)].type;
      type = type == ElementType::float64 ? ElementType::float32 : ElementType::float64;
      return true;
    }
    return false;
  };
  all["a communication has no number"] = [](Case& c, Dice& dice) {
    StepPlan& plan = any_plan(c, dice);
    auto nodes = nodes_of<TransferWork>(plan);
    if (nodes.empty()) return false;
    plan.nodes[pick(nodes, dice)].communication = plan.communications;
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

/// By fault: the message contains one of these texts.
std::map<std::string, std::vector<std::string>> words() {
  const std::vector<std::string> missing{"which no node has written",
                                         "is not written",
                                         "which another layer has overwritten",
                                         "no node reads",
                                         "which is the output of the network",
                                         "the gradient of a sum, ",
                                         "with zeros",
                                         "reads the gradient of the output before the last layer has replaced it",
                                         "no node computes the loss",
                                         "no node computes the metrics"};
  const std::vector<std::string> unnamed{"which the node does not name"};
  const std::vector<std::string> pooled{"computes a ReLU that has nodes of its own, or leaves out one that has none"};
  const std::vector<std::string> problem{"the problem of a kernel does not fit its boxes", "a kernel gets",
                                         "without a value"};
  const std::vector<std::string> not_summed{"before it is summed over the ranks"};
  const std::vector<std::string> other_ranks{"which is summed over the ranks"};
  const std::vector<std::string> disagree{"the members disagree on the sum of"};
  const std::string not_whole = "a partial all-reduce does not sum the whole gradients of all ranks";
  const std::vector<std::string> boxes{", and the peer sends [", ", and the peer expects [",
                                       " elements, and its boxes "};
  const std::vector<std::string> forever{"the ranks wait for each other forever; rank "};
  const std::vector<std::string> absent{", which does not take part"};
  return {
      {"a forward convolution is dropped", missing},
      {"a backward-data convolution is dropped", missing},
      {"a gradient of filters is dropped", missing},
      {"a gradient of a bias is dropped", missing},
      {"a rounding is dropped", missing},
      {"a forward pooling is dropped", missing},
      {"a backward pooling is dropped", missing},
      {"a resampling is dropped", missing},
      {"a normalisation is dropped", missing},
      {"the sums of a normalisation are dropped", missing},
      {"a gradient through a normalisation is dropped", missing},
      {"a mean is dropped", missing},
      {"a forward dense layer is dropped", missing},
      {"a gradient of a dense layer is dropped", missing},
      {"a forward pointwise layer is dropped", missing},
      {"a gradient through a pointwise layer is dropped", missing},
      {"a sum is dropped", missing},
      {"a normalisation forgets the sum behind it", missing},
      {"the gradient of a sum is added twice", {"the gradient of a sum, "}},
      {"a copy is dropped", missing},
      {"a dropout is dropped", missing},
      {"a loss is dropped", missing},
      {"the sums of a loss are dropped", missing},
      {"metrics are dropped", missing},
      {"metrics count samples that another rank counts", {"counts samples that "}},
      {"metrics are those of fewer pixels", {"the metrics are those of other samples"}},
      {"a mask belongs to another layer", {"the mask belongs to another tensor"}},
      {"a loss is computed before its sums are summed over the ranks", not_summed},
      {"a node writes the memory of the caller", {"writes the memory of the caller"}},
      {"a transfer is dropped", {absent[0], "only some ranks take part", "is not written"}},
      {"a sum over ranks is dropped", absent},
      {"a node is listed before a node that it needs", missing},
      {"two communications change places", {forever[0], "not listed in the order of its numbers"}},
      {"two exchanges change places on one rank", forever},
      {"an exchange and a sum change places on one rank", forever},
      {"a communication has no number", {" does not exist"}},
      {"a summand is counted twice", {"gets one summand twice"}},
      {"a summand covers one row too few", {" lacks summands: "}},
      {"a node names less than it writes", unnamed},
      {"a node names less than it reads", unnamed},
      {"a kernel gets a source one too small", problem},
      {"a kernel computes one row too few", problem},
      {"a kernel has a wrong offset", problem},
      {"no implementation of a kernel is chosen", {"the implementation of a kernel is not chosen"}},
      {"a kernel has a wrong number of channels", problem},
      {"a pooling has a wrong offset", problem},
      {"a pooling gets a window one too small", problem},
      {"a pooling leaves out the ReLU before it", pooled},
      {"a ReLU before a pooling has no node", {pooled[0], "another layer has overwritten"}},
      {"a resampling starts at another index", problem},
      {"a pointwise layer computes one row too few", {"inputs and output differ in size"}},
      {"a layer writes into the buffer of another one",
       {missing[0], missing[1], missing[2], "writes a sum of gradients to"}},
      {"a message has one element too many", boxes},
      {"a message goes to another rank",
       {"a message to or from rank ", "which the peer does not send", "which the peer does not expect", boxes[0],
        boxes[1]}},
      {"a message is not sent", {"), which the peer does not send"}},
      {"a message is not expected", {"), which the peer does not expect"}},
      {"a message comes from another box", boxes},
      {"a message goes to another box", boxes},
      {"a message comes from a rank that does not exist", {"a message to or from rank 1000"}},
      {"a message has another type", {" as double", " as float", " as bfloat16", " as float16"}},
      {"a local copy of a transfer is missing", {"nothing fills a part of"}},
      {"one rank runs the adjoint", {"ranks disagree on the transfer of"}},
      {"a sum over ranks lacks a member", disagree},
      {"a sum over ranks has another length", disagree},
      {"a sum over ranks has another type", disagree},
      {"a sum over ranks has another algorithm on one rank", {" by ring in parts of "}},
      {"a sum over ranks has other parts on one rank", disagree},
      {"a sum over ranks has another type on all ranks", {" as int32, and it is "}},
      {"one rank adds only contributions in time", {disagree[0], not_whole}},
      {"a partial all-reduce sums a part of the gradients", {not_whole}},
      {"a sum over ranks has no algorithm", {"the algorithm of a sum is not chosen"}},
      {"the parameters are updated before their gradients are summed",
       {not_summed[0], "before it is summed", missing[0]}},
      {"memory is smaller than the owned box", {"does not cover the owned box"}},
      {"the weights of a convolution are not made ready", {missing[0], "which no node of its phase has made ready"}},
      {"the weights of another convolution are made ready", unnamed},
      {"statistics that a kernel keeps are not written", missing},
      {"no rank adds the sums of a normalisation", not_summed},
      {"no rank adds the sums of the gradient of a normalisation", not_summed},
      {"no rank adds the sums of a mean", not_summed},
      {"no rank adds the sums of a loss", not_summed},
      {"no rank adds the metrics", not_summed},
      {"no rank adds the loss", not_summed},
      {"no rank adds gradients", {" lacks summands: "}},
      {"the sums of a normalisation leave a rank out", other_ranks},
      {"the sums of the gradient of a normalisation leave a rank out", other_ranks},
      {"the sums of a mean leave a rank out", other_ranks},
      {"the sums of gradients leave a rank out", {" lacks summands: "}},
      {"a mean is over another number of elements", {" elements, and the ranks of its sum have "}},
      {"statistics are taken over other ranks", {other_ranks[0], " elements, and the ranks of its sum have "}},
      {"a normalisation computes one row too few", {"normalises ["}},
      {"a mean is over another number of pixels", {"over another number of pixels"}},
      {"a mean sums one row too few", {"sums ["}},
      {"partial sums do not reach their owner", {"is not added to its owner"}},
      {"partial sums are added twice", {"is added to its owner twice"}},
      {"the parameters are updated before their gradients are computed",
       {"reads ", " after its update", " after the update by it", "nobody wrote", missing[0], missing[1]}},
      {"a segment is not updated", {"no update uses "}},
      {"a parameter is not updated", {"another number of elements", "no update uses "}},
      {"gradients are not accumulated", {" is not accumulated"}},
      {"a gradient is not accumulated", {" is not accumulated", "another number of elements"}},
      {"a gradient is accumulated twice", {" twice"}},
      {"a gradient is accumulated in the sum of another one", {"accumulates "}},
      {"a gradient has no sum over micro-batches", {"the numbers of gradients and sums differ"}},
      {"elements of gradients are not accumulated", {"another number of elements"}},
      {"gradients are accumulated before they are computed", {" after it was accumulated", missing[0]}},
      {"gradients are accumulated behind their sum or update", {" before it is accumulated"}},
      {"a step without micro-batches accumulates", {"in a step without micro-batches"}},
      {"a parameter is updated twice", {" is updated twice"}},
      {"a segment is updated twice", {" is updated twice"}},
      {"a parameter is updated with the gradient of another one", {"updates "}},
      {"a parameter is updated with the state of another one", {" with the state "}},
      {"an update lacks a state", {" states instead of "}},
      {"an update has another optimiser", {"updates by "}},
      {"the squares of a segment are not summed", {"no node sums the squares of ", missing[0]}},
      {"the squares of a tensor are not summed", {"no node sums the squares of "}},
      {"the squares of a tensor are summed twice", {" twice"}},
      {"the factors of an update are not found", {missing[0]}},
      {"an update ignores its factors", {"without the factors of the norms"}},
      {"a block of squares is counted by another number of ranks", {" the squares of block "}},
      {"no rank adds the squares of split tensors", not_summed},
      {"a step without an optimiser updates", {"in a step that ends with their gradients"}},
      {"a rank has another optimiser", {"the ranks update by different optimisers"}},
      {"an update names less than it changes", {"does not name all of "}},
      {"a parameter is read after its update", {" after its update"}},
      {"a rank computes no partial sums", {"lacks products of some channels"}},
      {"a rank multiplies the channels of another one", {"gets the products of the same channels twice"}},
  };
}

/// Each fault in many plans. Each plan with a fault is refused, with the rule, a node or ranks, and the right words.
TEST(Verify, EveryDeliberateFaultIsRefused) {
  const auto all = faults();
  const auto expected = words();
  EXPECT_GE(all.size(), 80u);
  std::vector<Case> cases;  // for all faults: a copy takes less time than the plans
  for (const auto& [name, change_plan] : all) {
    ASSERT_TRUE(expected.contains(name)) << name;
    const auto is_right = [&](const std::string& text) {
      return std::ranges::any_of(expected.at(name), [&](const auto& w) { return text.find(w) != std::string::npos; });
    };
    int tried = 0;
    for (int i = 0; i < 3000 && tried < 12; ++i) {
      const auto seed = static_cast<std::uint64_t>(i + 7000);
      // A node that is taken away moves the nodes that others repeat (test_recomputation.cpp).
      if (i == std::ssize(cases)) cases.push_back(random_case(seed, 6, false));
      Case c = cases[static_cast<std::size_t>(i)];
      Dice dice(seed + 1);
      if (!change_plan(c, dice)) continue;
      ++tried;
      const auto fault = verify(c.layers, c.plans);
      EXPECT_TRUE(fault) << name << ", case " << seed << '\n' << text_of(c);
      if (!fault) continue;
      EXPECT_FALSE(fault->ranks.empty()) << name;
      EXPECT_TRUE(is_right(fault->what)) << name << ", case " << seed << ": " << to_string(*fault);
    }
    EXPECT_GT(tried, 2) << name << " was hardly tried";
  }
}

// --- deadlock ---

halo::TransferPlan exchange_with(int peer) {
  const Box cell{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}};
  const halo::Message message{peer, {{cell, cell}}, 1};
  return {.sends = {message}, .receives = {message}, .local = {}, .fills = {}};
}

/// Rank r exchanges with the ranks after and before it. The numbers of the pairs (0, 1), (1, 2), (2, 0): 0, 1, 2.
StepPlan plan_in_a_ring(int rank, const std::vector<int>& order) {
  const Box cell{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}};
  StepPlan plan{.rank = rank, .ranks = 3, .communications = 3};
  plan.buffers.push_back({.name = "values", .owned = cell, .box = cell, .persistent = true});
  for (const int pair : order) {
    const int first = pair, second = (pair + 1) % 3;
    TransferWork work{.name = "values"};
    work.items.push_back({0, 0, cell, cell, exchange_with(rank == first ? second : first)});
    plan.nodes.push_back({.label = "pair " + std::to_string(pair), .work = work, .communication = pair});
  }
  return plan;
}

TEST(Verify, NamesTheNodesAndRanksOfACircle) {
  const std::vector<StepPlan> plans{plan_in_a_ring(0, {0, 2}), plan_in_a_ring(1, {1, 0}), plan_in_a_ring(2, {2, 1})};
  const auto fault = verify({}, plans);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->ranks.size(), 3u);
  EXPECT_NE(fault->what.find("rank 0 in \"pair 0\" for rank 1"), std::string::npos) << fault->what;
  EXPECT_NE(fault->what.find("rank 1 in \"pair 1\" for rank 2"), std::string::npos) << fault->what;
  EXPECT_NE(fault->what.find("rank 2 in \"pair 2\" for rank 0"), std::string::npos) << fault->what;
}

TEST(Verify, NamesTheRankThatLeavesAnExchangeOut) {
  const std::vector<StepPlan> plans{plan_in_a_ring(0, {0, 2}), plan_in_a_ring(1, {1}), plan_in_a_ring(2, {1, 2})};
  const auto fault = verify({}, plans);
  ASSERT_TRUE(fault);
  EXPECT_EQ(to_string(*fault), "ranks 0, 1, pair 0: waits forever for rank 1, which does not take part");
}

/// Runs the actions of all ranks. A transfer finishes once its peers have come to its end too, a sum once all members
/// have started it. Returns the first rank that waits forever; -1: all come to the end.
int first_blocked(const std::vector<StepPlan>& plans, std::uint64_t seed) {
  struct Rank {
    std::vector<StepAction> actions;
    std::size_t at = 0;
    std::vector<int> started, ended;  ///< by communication: the position of the action that starts and ends it
  };
  std::vector<Rank> ranks;
  for (const StepPlan& plan : plans) {
    Rank rank;
    ScheduleOptions order;
    if (seed > 0) order.seed = seed + static_cast<std::uint64_t>(plan.rank);
    rank.actions = schedule(graph_of(plan), order);
    rank.started.assign(static_cast<std::size_t>(plan.communications), -1);
    rank.ended = rank.started;
    for (std::size_t a = 0; a < rank.actions.size(); ++a) {
      const int number = plan.nodes[static_cast<std::size_t>(rank.actions[a].node)].communication;
      if (number < 0) continue;
      auto& places = rank.actions[a].kind == StepActionKind::start ? rank.started : rank.ended;
      places[static_cast<std::size_t>(number)] = static_cast<int>(a);
    }
    ranks.push_back(std::move(rank));
  }
  const auto can_act = [&](std::size_t r) {
    const StepAction& action = ranks[r].actions[ranks[r].at];
    if (action.kind != StepActionKind::finish) return true;
    const PlanNode& node = plans[r].nodes[static_cast<std::size_t>(action.node)];
    const auto number = static_cast<std::size_t>(node.communication);
    if (const auto* sum = std::get_if<ReductionWork>(&node.work)) {
      return std::ranges::all_of(sum->members, [&](int m) {
        const Rank& other = ranks[static_cast<std::size_t>(m)];
        return other.started[number] >= 0 && static_cast<std::size_t>(other.started[number]) < other.at;
      });
    }
    for (const TransferItemPlan& item : std::get<TransferWork>(node.work).items)
      for (const auto* messages : {&item.plan.sends, &item.plan.receives})
        for (const halo::Message& m : *messages) {
          const Rank& other = ranks[static_cast<std::size_t>(m.peer)];
          if (other.ended[number] < 0 || static_cast<std::size_t>(other.ended[number]) > other.at) return false;
        }
    return true;
  };
  for (bool any = true; any;) {
    any = false;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (; ranks[r].at < ranks[r].actions.size() && can_act(r); ++ranks[r].at) any = true;
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].at < ranks[r].actions.size()) return static_cast<int>(r);
  return -1;
}

/// What check_progress() claims of every order of schedule(), for some of them.
TEST(Verify, RanksWithDifferentOrdersComeToTheEnd) {
  for (int i = 0; i < aloni::test::random_cases(400); ++i) {
    const Case c = random_case(static_cast<std::uint64_t>(i), 24);
    for (std::uint64_t order = 0; order < 3; ++order)
      ASSERT_EQ(first_blocked(c.plans, order * 1000), -1) << "case " << i << '\n' << text_of(c);
  }
  const std::vector<StepPlan> circle{plan_in_a_ring(0, {0, 2}), plan_in_a_ring(1, {1, 0}), plan_in_a_ring(2, {2, 1})};
  EXPECT_EQ(first_blocked(circle, 0), 0);
}

TEST(Verify, AReluBeforeAPoolingHasNodesIfAnotherLayerReadsIt) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 8}, 4);
  net.loss = Loss::binary_cross_entropy;
  const Window two = square_window(2, 2, 2);
  net.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu", Relu{}, {"conv"}},
                {"pool", Pooling{PoolingKind::max, two}, {"relu"}},
                {"mean", Pooling{PoolingKind::average, two}, {"relu"}},
                {"sum", Add{}, {"pool", "mean"}}};
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 2);
  std::vector<StepPlan> plans{plan_step(net, layers, 0, StepKind::training, {}, {})};
  EXPECT_TRUE(plans[0].pooled_relus.empty());
  EXPECT_FALSE(verify(layers, plans).has_value());
  plans[0].pooled_relus = {1};
  ASSERT_TRUE(verify(layers, plans).has_value());
  EXPECT_NE(verify(layers, plans)->what.find("has several readers"), std::string::npos);
}

TEST(Verify, TrainingAndInferenceOfTheModelsAreRightInOneMemory) {
  const auto image = [](Index size, Index channels) { return views::make_extents(1, {size, size}, channels); };
  const auto volume = [](Index size, Index channels) { return views::make_extents(1, {size, size, size}, channels); };
  const std::map<std::string, Extents> inputs{
      {"lenet5", image(28, 1)},  {"resnet18", image(16, 3)},    {"resnet50", image(16, 3)}, {"vgg16", image(32, 3)},
      {"mesh1k", image(64, 18)}, {"densenet121", image(32, 3)}, {"mesh2k", image(128, 18)}, {"unet2d", image(32, 1)},
      {"unet3d", volume(16, 1)}, {"cosmoflow", volume(32, 1)},  {"resnet152", image(16, 3)}};
  const std::vector<std::string> names = model_names();
  ASSERT_EQ(names.size(), inputs.size());
  for (const std::string& name : names) {
    if (name == "resnet152" && !aloni::test::nightly()) continue;  // as resnet50, but three times as long
    const NetworkDescription network = make_model(name, {.input = inputs.at(name)});
    for (const char* const split : {"n1", "n2", "h2", "c2", "f2", "n2h2", "h2w2", "c2f2"}) {
      const LayerSplit uniform = LayerSplit::parse(split);
      const int ranks = uniform.size();
      const NetworkPlan layers = plan_network(network, resolve(Strategy::uniform(uniform), network, ranks), ranks, 4);
      const MachineDescription machine = machine_of_nodes(ranks, 2);
      std::vector<StepPlan> training, inference;
      for (int r = 0; r < ranks; ++r) {
        NetworkPlans plans(network, layers, r, machine);
        const auto fault = plans.fault(plans.layout, static_cast<std::uint64_t>(r));
        EXPECT_FALSE(fault) << name << ' ' << split << ", rank " << r << ": " << *fault;
        training.push_back(std::move(plans.training));
        inference.push_back(std::move(plans.inference));
      }
      for (const auto* plans : {&training, &inference}) {
        const auto fault = verify(layers, *plans);
        EXPECT_FALSE(fault) << name << ' ' << split << ": " << to_string(*fault);
      }
    }
  }
}

}  // namespace test_verify
