// Steps of real networks on streams that work late. Every order that the events allow gives the bits of the order of
// submission. Without any one event of a plan, some rank gets a wrong number.
#include "late_streams.hpp"
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/binder.hpp>
#include <aloni/nn/run/network_checks.hpp>
#include <aloni/nn/run/parameter_memory.hpp>
#include <aloni/nn/run/plan_memory.hpp>
#include <aloni/nn/step.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::test {
namespace test_late_streams {

using T = float;
using Exec = execution_space_t<T>;
using Mem = Exec::memory_space;
using Flat = Kokkos::View<T*, Kokkos::HostSpace>;

struct Case {
  const char* name;
  NetworkDescription network;
  const char* grid;
  const char* offload = nullptr;  ///< layers whose activations lie in host memory between both passes; null: none
};

/// Blocks of convolution, batch normalisation and ReLU, as in mesh1k, with few filters.
NetworkDescription small_mesh() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {24, 24}, 3);
  net.loss = Loss::binary_cross_entropy;
  std::string last = "input";
  for (const char* const block : {"1", "2", "3"}) {
    const std::string name(block);
    const bool first = name == "1";
    net.layers.push_back({"conv" + name, Convolution{4, square_window(2, first ? 5 : 3, 2, first ? 2 : 1)}, {last}});
    net.layers.push_back({"norm" + name, BatchNorm{}, {"conv" + name}});
    net.layers.push_back({"relu" + name, Relu{}, {"norm" + name}});
    last = "relu" + name;
  }
  net.layers.push_back({"prediction", Convolution{1, square_window(2, 1, 1, 0), true}, {last}});
  return net;
}

NetworkDescription small_residual_net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {12, 12}, 3);
  net.layers = {{"stem", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"stem_norm", BatchNorm{}, {"stem"}},
                {"stem_relu", Relu{}, {"stem_norm"}},
                {"a", Convolution{8, square_window(2, 3, 2, 1)}, {"stem_relu"}},
                {"a_norm", BatchNorm{}, {"a"}},
                {"a_relu", Relu{}, {"a_norm"}},
                {"b", Convolution{8, square_window(2, 3, 1, 1)}, {"a_relu"}},
                {"b_norm", BatchNorm{}, {"b"}},
                {"shortcut", Convolution{8, square_window(2, 1, 2, 0)}, {"stem_relu"}},
                {"sum", Add{}, {"b_norm", "shortcut"}},
                {"sum_relu", Relu{}, {"sum"}},
                {"mean", GlobalAveragePooling{}, {"sum_relu"}},
                {"flatten", Flatten{}, {"mean"}},
                {"dense", Dense{5}, {"flatten"}}};
  return net;
}

/// With a layer whose mask is another one in each step.
NetworkDescription small_mesh_with_dropout() {
  NetworkDescription net = small_mesh();
  net.layers.insert(net.layers.end() - 1, {"dropout", Dropout{0.25}, net.layers.back().inputs});
  net.layers.back().inputs = {"dropout"};
  return net;
}

std::vector<Case> cases(int ranks) {
  const NetworkDescription lenet = lenet5(views::make_extents(1, {28, 28}, 1), 10);
  if (ranks == 2)
    return {{"lenet5", lenet, "h2"},
            {"residual", small_residual_net(), "n2"},
            {"mesh", small_mesh(), "w2"},
            {"offloading mesh", small_mesh(), "h2", "*"}};
  return {{"lenet5", lenet, "n4"},
          {"residual", small_residual_net(), "n2h2"},
          {"mesh", small_mesh(), "h2w2"},
          {"offloading mesh", small_mesh(), "h2w2", "*"}};
}

/// Late streams for a step on a host, where sums over ranks work in place: values may be read after the start, and
/// results appear before the finish. Here they travel as on a device: the start reads, the finish writes.
class StagedStreams {
 public:
  using Work = std::function<void(const Queue<Exec>&)>;
  using Bytes = std::span<std::byte>;
  /// Of each action: the values of its sum over ranks; empty for other actions.
  using Sums = std::vector<Bytes>;

  StagedStreams(LateStreams<Queue<Exec>>& late, const std::vector<StepAction>& actions, const Sums& sums)
      : late_(late), actions_(actions), sums_(sums) {}

  void record(int stream, int point) { late_.record(stream, point); }
  void await(int stream, int point) { late_.await(stream, point); }
  template <class F>
  void submit(int stream, F f) {
    const StepAction& action = actions_[next_];
    const Bytes values = sums_[next_++];
    if (values.empty()) return late_.submit(stream, std::move(f));
    auto& sum = in_flight_[action.node];
    if (action.kind == StepActionKind::finish) {
      sum->finish = std::move(f);
      return late_.submit(stream,
                          [sum, values](const Queue<Exec>&) { std::ranges::copy(sum->result, values.begin()); });
    }
    sum = std::make_shared<Sum>();
    // All ranks start their sums in one order. So they may wait for each other at the start.
    late_.submit(stream, [sum, values, start = Work(std::move(f))](const Queue<Exec>& queue) {
      const std::vector<std::byte> own(values.begin(), values.end());
      start(queue);
      sum->finish(queue);
      sum->result.assign(values.begin(), values.end());
      std::ranges::copy(own, values.begin());
    });
  }

 private:
  struct Sum {
    Work finish;
    std::vector<std::byte> result;
  };

  LateStreams<Queue<Exec>>& late_;
  const std::vector<StepAction>& actions_;
  const Sums& sums_;
  std::size_t next_ = 0;
  std::map<int, std::shared_ptr<Sum>> in_flight_;  ///< by node
};

/// The values of the host that kernels of a step get as arguments.
struct HostValues {
  SgdOptions optimiser = {.learning_rate = 0.1, .momentum = 0.9};
  std::int64_t update = 1;
  std::uint64_t dropout_step = 0, filter_version = 0;
};

/// Repeats recorded segments as a device does: with the host's values at the time of the recording, whatever they are
/// now. Actions within a segment run late, in any order that its events allow.
class FreezingRecorder final : public StepRecorder<Exec> {
 public:
  using Set = std::function<void(const HostValues&)>;

  /// `now`: the values that the host has given to the kernels. `set` gives them others.
  FreezingRecorder(const HostValues& now, Set set) : now_(now), set_(std::move(set)) {}

  void run(std::size_t number, const StepSegment& segment, std::span<const Queue<Exec>> queues,
           const Act& act) override {
    const auto [recorded, is_new] = recorded_.try_emplace(number, now_);
    set_(recorded->second);
    LateStreams<Queue<Exec>> within(queues.front(), segment.inner.streams);
    run_on_streams(segment.inner, within, std::cref(act));
    within.run(random_order(++runs_));
    set_(now_);
    repeated_ += is_new ? 0 : 1;
  }
  std::optional<std::string> refusal(std::size_t) const override { return std::nullopt; }
  int repeated() const { return repeated_; }

 private:
  const HostValues& now_;
  Set set_;
  std::map<std::size_t, HostValues> recorded_;  ///< by segment
  std::uint64_t runs_ = 0;
  int repeated_ = 0;
};

/// A training step of one network, bound to kernels and messages, without a Network around it.
class BoundStep {
 public:
  static constexpr Index samples = 4;
  static constexpr std::uint64_t seed = 17;
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;

  BoundStep(const comm::Communicator& comm, const Case& c, int streams, bool records = false,
            bool lends_gradient_memory = true)
      : comm_(comm),
        layers_(plan_network(c.network,
                             resolve(Strategy::uniform(views::ProcessGrid::parse(c.grid)), c.network, comm.size()),
                             comm.size(), samples)),
        parameters_(parameters_of(comm, queue_, c.network)),
        memory_(comm, queue_),
        whole_(c.network.input) {
    whole_[views::Dim::sample] = samples;
    MachineDescription machine = comm::describe_machine(comm, detail::costs_of({}, on_host));
    machine.bucket_bytes = 2048;             // several sums beside the backward pass
    machine.direct_bytes = unlimited_bytes;  // values are read at the start of a transfer
    plan_ = plan_step(c.network, layers_, comm.rank(), StepKind::training, machine,
                      {.largest_overhead = 1.0,
                       .offload = c.offload ? offloaded_layers(c.network, c.offload) : Offloading{},
                       .streams = streams});
    if (!lends_gradient_memory) plan_.gradient_memory.clear();
    detail::use_parameters(parameters_, memory_);
    const std::vector<const StepPlan*> plans{&plan_};
    memory_.allocate(plans, lay_out_memory(plans, machine), true);
    binder_.emplace(comm, queue_, memory_, machine, &parameters_);
    give({});
    binder_->set_dropout_seed(seed);
    binder_->keep_filters(!records);
    EXPECT_TRUE(binder_->sums_can_start());
    for (int n = 0; n < static_cast<int>(plan_.nodes.size()); ++n) binder_->bind(plan_, n, step_);
    if (records) {
      auto recorder = std::make_unique<FreezingRecorder>(now_, [this](const HostValues& v) { set(v); });
      recorder_ = recorder.get();
      step_.set_recorder(std::move(recorder), {.least_kernels = 1});  // all that may be recorded
    }
    step_.prepare({.kernels_ahead = 1}, streams);
    for (const StepAction& action : step_.actions()) sums_.push_back(values_of_sum(action.node));
    queue_.fence("aloni::test: set-up is complete");
  }

  const Queue<Exec>& queue() const { return queue_; }
  const StreamPlan& streams() const { return step_.streams(); }
  const StepGraph& graph() const { return step_.graph(); }
  const std::vector<StepAction>& actions() const { return step_.actions(); }
  /// Whether the point starts a transfer of which this rank sends and copies nothing. Plans name the whole box as read,
  /// so the start waits for its producer although nothing depends on it.
  bool starts_transfer_without_source(int point) const {
    if (point == begin_of_step || point == streams().end()) return false;
    const StepAction& action = actions()[static_cast<std::size_t>(point)];
    const auto* const work = std::get_if<TransferWork>(&plan_.nodes[static_cast<std::size_t>(action.node)].work);
    if (!work || action.kind != StepActionKind::start) return false;
    return std::ranges::all_of(work->items, [&](const TransferItemPlan& item) {
      return (work->adjoint ? item.plan.receives : item.plan.sends).empty() && item.plan.local.empty();
    });
  }

  /// Whether the point only tells kernels that their filters may have changed. It submits nothing, if no weights are
  /// copied; kernels that run before it reorder their filters at its next turn.
  bool announces_filters(int point) const {
    if (point == begin_of_step || point == streams().end()) return false;
    const StepAction& action = actions()[static_cast<std::size_t>(point)];
    return std::holds_alternative<WeightsWork>(plan_.nodes[static_cast<std::size_t>(action.node)].work);
  }

  /// Whether the point brings activations back from host memory. It also waits for a kernel whose values it does not
  /// need, so that it does not begin too early.
  bool brings_back(int point) const {
    if (point == begin_of_step || point == streams().end()) return false;
    const StepAction& action = actions()[static_cast<std::size_t>(point)];
    const auto* const copy = std::get_if<OffloadWork>(&plan_.nodes[static_cast<std::size_t>(action.node)].work);
    return copy && copy->back;
  }

  /// Whether the point brings activations back to a place that no other buffer has had meanwhile. They are still there.
  bool returns_to_an_untouched_place(int point) const {
    if (!brings_back(point)) return false;
    const int back = actions()[static_cast<std::size_t>(point)].node;
    const BufferId b = std::get<OffloadWork>(plan_.nodes[static_cast<std::size_t>(back)].work).buffer;
    const auto accesses = memory_.accesses(plan_, plan_.nodes[static_cast<std::size_t>(back)]);
    const auto own = std::ranges::find(accesses, true, &Access::writes);
    const NodeRange away = plan_.buffers[static_cast<std::size_t>(b)].unused.front();
    for (int n = away.first; n <= away.last; ++n)
      for (const Access& a : memory_.accesses(plan_, plan_.nodes[static_cast<std::size_t>(n)]))
        if (a.writes && a.bytes > 0 && a.address < own->address + own->bytes && own->address < a.address + a.bytes)
          return false;
    return true;
  }

  /// Two steps with different data, from the same initial values; what they leave on this rank.
  std::vector<T> run_in_order() {
    reset();
    std::vector<T> result;
    for (std::uint64_t round = 0; round < 2; ++round) {
      fill_input(round);
      step_.execute(queue_, comm_, stopwatch_);
      append_values(result);
    }
    return result;
  }
  /// Four steps with other data, other rates, other masks and other filters; what they leave on this rank.
  std::vector<T> run_varied(bool recorded) {
    reset();
    std::vector<T> result;
    const std::vector<Queue<Exec>> queues(most_streams, queue_);
    for (std::uint64_t round = 0; round < 4; ++round) {
      give({.optimiser = {.learning_rate = 0.1 / static_cast<double>(round + 1), .momentum = 0.9},
            .update = static_cast<std::int64_t>(round) + 1,
            .dropout_step = 7 * round,
            .filter_version = round + 1});
      fill_input(round);
      if (!recorded) {
        step_.execute(queue_, comm_, stopwatch_);
      } else {
        LateStreams<Queue<Exec>> streams(queue_, most_streams);
        const auto [actions, sums] = pieces();
        StagedStreams staged(streams, actions, sums);
        step_.execute_pieces_on(staged, queues, comm_, stopwatch_);
        streams.run(random_order(round));
      }
      append_values(result);
    }
    give({});
    return result;
  }
  const SegmentedPlan& segments() const { return step_.segments(); }
  int repeated() const { return recorder_->repeated(); }

  /// The same, submitted to late streams before any of it runs.
  std::vector<T> run_late(const StreamPlan& plan, const StreamChoice& choose) {
    reset();
    std::vector<T> result;
    LateStreams<Queue<Exec>> streams(queue_, plan.streams);
    for (std::uint64_t round = 0; round < 2; ++round) {
      streams.submit(compute_stream, [this, round](const Queue<Exec>&) { fill_input(round); });
      StagedStreams staged(streams, step_.actions(), sums_);
      step_.execute_on(staged, plan, comm_, stopwatch_);
      streams.submit(compute_stream, [this, &result](const Queue<Exec>&) { append_values(result); });
    }
    streams.run(choose);
    return result;
  }

 private:
  /// On a device in memory of this rank alone: sums over ranks of one device, without NCCL, could not start beside
  /// kernels otherwise.
  static Parameters<T, Exec> parameters_of(const comm::Communicator& comm, const Queue<Exec>& queue,
                                           const NetworkDescription& network) {
    if (on_host) return {comm, queue, network, seed};
    return {queue, network, seed};
  }
  void give(const HostValues& values) {
    now_ = values;
    set(values);
  }
  void set(const HostValues& values) {
    binder_->set_update(values.optimiser, values.update);
    binder_->set_dropout_step(values.dropout_step);
    binder_->set_filter_version(values.filter_version);
  }
  /// The actions of the pieces, as StagedStreams wants them; a recorded segment is as a kernel.
  std::pair<std::vector<StepAction>, StagedStreams::Sums> pieces() const {
    std::pair<std::vector<StepAction>, StagedStreams::Sums> all;
    for (const StepPiece& piece : step_.segments().pieces) {
      const auto a = static_cast<std::size_t>(piece.action);
      all.first.push_back(piece.action < 0 ? StepAction{StepActionKind::run, -1} : actions()[a]);
      all.second.push_back(piece.action < 0 ? StagedStreams::Bytes{} : sums_[a]);
    }
    return all;
  }
  std::span<std::byte> values_of_sum(int node) const {
    const auto* const work = std::get_if<ReductionWork>(&plan_.nodes[static_cast<std::size_t>(node)].work);
    if constexpr (!on_host) return {};
    if (!work) return {};
    const auto first = static_cast<std::size_t>(work->first), elements = static_cast<std::size_t>(work->elements);
    const auto bytes = [&](auto* data) { return std::as_writable_bytes(std::span(data + first, elements)); };
    if (work->segment >= 0)
      return bytes(parameters_.segments()[static_cast<std::size_t>(work->segment)].gradients.data());
    const BufferId b = work->buffers.at(0);
    if (work->type == ElementType::float64) return bytes(memory_.data<double>(plan_, b));
    return bytes(memory_.data<T>(plan_, b));
  }
  void reset() {
    const auto& segment = parameters_.segments()[0];
    if (initial_.extent(0) == 0) {
      initial_ = Flat("aloni::test", segment.values.extent(0));
      Kokkos::deep_copy(initial_, segment.values);
    }
    Kokkos::deep_copy(segment.values, initial_);
    for (const auto& state : segment.states) Kokkos::deep_copy(state, T(0));
    fill_input(2);
  }
  void fill_input(std::uint64_t round) {
    const LossWork loss = loss_of(plan_);
    const views::Box& input = plan_.buffers[static_cast<std::size_t>(plan_.input)].owned;
    fill<T>(memory_.view<T>(plan_, plan_.input, input), input, whole_, Values::reals, seed + round, 1);
    if (loss.targets == no_buffer) return;
    const auto& targets = plan_.buffers[static_cast<std::size_t>(loss.targets)];
    if (targets.type == ElementType::int32) {
      const auto labels = memory_.flat<std::int32_t>(plan_, loss.targets);
      const auto host = Kokkos::create_mirror_view(labels);
      for (std::size_t i = 0; i < host.extent(0); ++i) host(i) = static_cast<std::int32_t>((i + round) % 5);
      Kokkos::deep_copy(labels, host);
    } else {
      fill<T>(memory_.view<T>(plan_, loss.targets), targets.box, views::extents_of(targets.box), Values::integers,
              seed + round, 2);
    }
  }
  static LossWork loss_of(const StepPlan& plan) {
    for (const PlanNode& node : plan.nodes)
      if (const auto* loss = std::get_if<LossWork>(&node.work)) return *loss;
    return {};
  }
  /// The parameters and their gradients; the loss is behind these.
  void append_values(std::vector<T>& to) const {
    const auto& segment = parameters_.segments()[0];
    for (const auto& flat : {segment.values, segment.gradients}) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, flat);
      to.insert(to.end(), host.data(), host.data() + host.extent(0));
    }
  }

  comm::Communicator comm_;
  Queue<Exec> queue_;
  NetworkPlan layers_;
  StepPlan plan_;
  Parameters<T, Exec> parameters_;
  PlanMemory<Exec> memory_;
  std::optional<Binder<T, Exec>> binder_;
  HostValues now_;
  FreezingRecorder* recorder_ = nullptr;  ///< of the step
  Step<Exec> step_;
  StagedStreams::Sums sums_;
  Stopwatch stopwatch_;
  Flat initial_;
  views::Extents whole_;  ///< of the input of a mini-batch
};

bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
/// Collective.
bool on_any_rank(const comm::Communicator& comm, bool value) {
  return comm.all_reduce(value ? 1 : 0, comm::Reduction::max) != 0;
}

TEST(LateStreams, GivesTheSameBitsInEveryOrder) {
  const auto comm = aloni::test::make_communicator();
  for (const Case& c : cases(comm.size())) {
    BoundStep step(comm, c, most_streams);
    const std::vector<T> expected = step.run_in_order();
    ASSERT_TRUE(std::ranges::all_of(expected, [](T v) { return std::isfinite(v); })) << c.name;
    for (std::uint64_t order = 1; order <= 10; ++order) {
      const bool same = same_bits(step.run_late(step.streams(), random_order(10 * order + comm.rank())), expected);
      ASSERT_FALSE(on_any_rank(comm, !same)) << c.name << ", order " << order;
    }
  }
}

/// Removes each event of each rank in turn. That rank then runs the waiting stream as early as the other events allow.
/// No buffer lies in the memory of gradients: there the sums of a mean would precede its copy, with the same values.
TEST(LateStreams, GivesAWrongNumberWithoutAnyOneEvent) {
  const auto comm = aloni::test::make_communicator();
  int found = 0, found_at_borders = 0, found_at_copies = 0;
  for (const Case& c : cases(comm.size())) {
    BoundStep step(comm, c, most_streams, false, false);
    const std::vector<T> expected = step.run_in_order();
    for (int rank = 0; rank < comm.size(); ++rank) {
      const bool mine = comm.rank() == rank;
      const auto most = [&](int value) { return comm.all_reduce(mine ? value : 0, comm::Reduction::max); };
      const int events = most(static_cast<int>(step.streams().events.size()));
      for (int e = 0; e < events; ++e) {
        StreamPlan plan = step.streams();
        StreamChoice order = random_order(static_cast<std::uint64_t>(e));
        std::string race;
        bool can_show = false, at_border = false, at_copy = false;
        if (mine) {
          const StreamEvent event = plan.events[static_cast<std::size_t>(e)];
          plan.events.erase(plan.events.begin() + e);
          order = early_and_late(plan.stream(event.before), plan.stream(event.after));
          race = find_race(step.graph(), step.actions(), plan).value_or("");
          EXPECT_NE(race, "");
          at_border = plan.stream(event.before) == border_stream || plan.stream(event.after) == border_stream;
          at_copy = plan.stream(event.before) == copy_stream || plan.stream(event.after) == copy_stream;
          can_show = !step.starts_transfer_without_source(event.before) && !step.announces_filters(event.after) &&
                     !step.brings_back(event.before) && !step.returns_to_an_untouched_place(event.after);
        }
        const bool wrong = on_any_rank(comm, !same_bits(step.run_late(plan, order), expected));
        if (most(can_show ? 1 : 0) == 0) continue;
        EXPECT_TRUE(wrong) << c.name << ", rank " << rank << ", event " << e << ": " << race;
        ++found;
        found_at_borders += most(at_border ? 1 : 0);
        found_at_copies += most(at_copy ? 1 : 0);
      }
    }
  }
  EXPECT_GE(found, 20 * comm.size());
  EXPECT_GE(found_at_borders, comm.size());
  EXPECT_GE(found_at_copies, 4 * comm.size());
}

/// A node in a recorded segment whose kernels depend on values of the host would repeat those of the first step.
TEST(LateStreams, RepeatRecordedSegmentsWithTheSameBits) {
  const auto comm = aloni::test::make_communicator();
  auto all = cases(comm.size());
  all.push_back({"mesh with dropout", small_mesh_with_dropout(), all.back().grid});
  for (const Case& c : all) {
    BoundStep step(comm, c, most_streams), recorded(comm, c, most_streams, true);
    const std::vector<T> expected = step.run_varied(false);
    ASSERT_TRUE(std::ranges::all_of(expected, [](T v) { return std::isfinite(v); })) << c.name;
    const bool same = same_bits(recorded.run_varied(true), expected);
    ASSERT_FALSE(on_any_rank(comm, !same)) << c.name;
    const auto segments = std::ranges::count_if(recorded.segments().segments, &StepSegment::recorded);
    EXPECT_GE(segments, 3) << c.name;
    EXPECT_EQ(recorded.repeated(), 3 * segments) << c.name;
  }
}

}  // namespace test_late_streams
}  // namespace aloni::nn::test
