// One rank passes another argument: all ranks get an error that names this value and the ranks.
#include "support/experiment.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include "random_network.hpp"

#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/tuning.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/trainer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_replicated {

using test::Dice;
using testing::HasSubstr;

/// The arguments of one rank.
struct Arguments {
  NetworkDescription network;
  Strategy strategy;
  LabelledImages train, test;
  TrainOptions options{.batch = 4, .steps = 1};
  Index samples = 4;
  NetworkOptions network_options;
  comm::Tuning tuning;
};

LabelledImages random_images(Dice& dice, Index count) {
  LabelledImages images;
  images.image = views::make_extents(1, {28, 28}, 1);
  for (Index i = 0; i < count; ++i) images.labels.push_back(static_cast<std::uint8_t>(dice(0, 9)));
  images.pixels.resize(static_cast<std::size_t>(count * images.image.size()));
  for (auto& pixel : images.pixels) pixel = static_cast<std::uint8_t>(dice(0, 255));
  return images;
}

Arguments random_arguments(Dice& dice, const comm::Communicator& comm) {
  Arguments a;
  a.train = random_images(dice, dice(8, 20));
  a.test = random_images(dice, dice(4, 8));
  a.network = lenet5(a.train.image, 10);
  const std::array overlaps{Overlap::interior_first, Overlap::blocking};
  for (const char* const pattern : {"conv*", "pool?", "*"})
    a.strategy.rules.push_back({pattern, {views::ProcessGrid{}, 1, overlaps[static_cast<std::size_t>(dice(0, 1))]}});
  a.options.seed = static_cast<std::uint64_t>(dice(0, 1000));
  const int per_node = aloni::test::transport_options().ranks_per_node;
  a.tuning = {.ranks = comm.size(),
              .nodes = per_node > 0 ? (comm.size() + per_node - 1) / per_node : 1,
              .latency = 1e-6,
              .seconds_per_byte = 1e-9,
              .combine_seconds_per_byte = 1e-10,
              .measurements = {{comm::AllReduceAlgorithm::ring, 1000, 1e-6}}};
  return a;
}

/// The call that compares a value.
enum class Call { train, network, tuning };

struct Change {
  Call call;
  std::string name;  ///< of the value in the error
  std::function<void(Arguments&, Dice&)> apply;
  std::function<void(Arguments&)> prepare = [](Arguments&) {};  ///< on all ranks, before
};

/// A change of a number to another one.
template <class T>
void change_number(T& value, Dice& dice) {
  if constexpr (std::is_same_v<T, bool>)
    value = !value;
  else
    value += static_cast<T>(dice(1, 100)) / static_cast<T>(std::is_integral_v<T> ? 1 : 1024);
}

template <class Owner, class T>
Change number(Call call, std::string name, Owner Arguments::*owner, T Owner::*member) {
  return {call, std::move(name),
          [owner, member](Arguments& a, Dice& dice) { change_number((a.*owner).*member, dice); }};
}

/// A change of a number of an optimiser.
template <class Options, class T>
Change number(std::string name, T Options::*member) {
  return {Call::train, std::move(name),
          [member](Arguments& a, Dice& dice) { change_number(std::get<Options>(a.options.optimiser).*member, dice); },
          [](Arguments& a) { a.options.optimiser = Options{}; }};
}

/// A change of a number of K-FAC.
template <class T>
Change kfac(const std::string& name, T KfacOptions::*member) {
  return {Call::train, "kfac " + name,
          [member](Arguments& a, Dice& dice) { change_number((*a.options.kfac).*member, dice); },
          [](Arguments& a) { a.options.kfac = KfacOptions{}; }};
}

/// A change of a number of the checkpoints.
template <class T>
Change number(std::string name, T CheckpointOptions::*member) {
  return {Call::train, std::move(name),
          [member](Arguments& a, Dice& dice) { change_number(a.options.checkpoint.*member, dice); }};
}

template <class Owner, class T>
Change choice(Call call, std::string name, Owner Arguments::*owner, T Owner::*member, T other) {
  return {call, std::move(name), [=](Arguments& a, Dice&) { (a.*owner).*member = other; }};
}

/// A change of a member of a schedule.
Change schedule(const std::string& name, const Schedule& before, const Schedule& other) {
  return {Call::train, "schedule " + name, [other](Arguments& a, Dice&) { a.options.schedule.schedule = other; },
          [before](Arguments& a) { a.options.schedule.schedule = before; }};
}

/// A change of a member of the rule for the loss scale.
Change scaling(const std::string& name, const LossScaling& other) {
  return {Call::train, name, [other](Arguments& a, Dice&) { a.options.update.loss_scaling = other; },
          [](Arguments& a) { a.options.update.loss_scaling = LossScaling{}; }};
}

std::vector<Change> changes_of_optimisers() {
  return {
      number("nesterov", &SgdOptions::nesterov),
      number("learning rate", &LarsOptions::learning_rate),
      number("momentum", &LarsOptions::momentum),
      number("weight decay", &LarsOptions::weight_decay),
      number("trust", &LarsOptions::trust),
      number("epsilon", &LarsOptions::epsilon),
      {Call::train, "optimiser", [](Arguments& a, Dice&) { a.options.optimiser = AdamOptions{}; }},
      number("learning rate", &SgdOptions::learning_rate),
      number("momentum", &SgdOptions::momentum),
      number("weight decay", &SgdOptions::weight_decay),
      number("learning rate", &AdamOptions::learning_rate),
      number("beta1", &AdamOptions::beta1),
      number("beta2", &AdamOptions::beta2),
      number("epsilon", &AdamOptions::epsilon),
      number("weight decay", &AdamOptions::weight_decay),
      {Call::train, "decay",
       [](Arguments& a, Dice&) { std::get<AdamOptions>(a.options.optimiser).decay = WeightDecay::decoupled; },
       [](Arguments& a) { a.options.optimiser = AdamOptions{}; }},
  };
}

MeasuredImplementations measured() {
  return {{{{1, 2, 3}, {{.implementation = "direct", .seconds = 1, .runs = 10}}}}, 1000};
}

std::vector<Change> changes_of_options() {
  constexpr auto o = &Arguments::options;
  constexpr auto n = &Arguments::network_options;
  using T = TrainOptions;
  using N = NetworkOptions;
  return {
      number(Call::train, "batch", o, &T::batch),
      number(Call::train, "epochs", o, &T::epochs),
      number(Call::train, "steps", o, &T::steps),
      number(Call::train, "seed", o, &T::seed),
      choice(Call::train, "schedule", o, &T::schedule, LearningRate{LinearSchedule{}}),
      choice(Call::train, "warm-up", o, &T::schedule, LearningRate{.warm_up = 3}),
      choice(Call::train, "early stop", o, &T::early_stop, EarlyStop{.patience = 3}),
      {Call::train, "kfac", [](Arguments& a, Dice&) { a.options.kfac = KfacOptions{}; }},
      kfac("every", &KfacOptions::every),
      kfac("factors_every", &KfacOptions::factors_every),
      kfac("delay", &KfacOptions::delay),
      kfac("damping", &KfacOptions::damping),
      kfac("decay", &KfacOptions::decay),
      kfac("kl_clip", &KfacOptions::kl_clip),
      {Call::train, "average", [](Arguments& a, Dice&) { a.options.average = Averaging{}; }},
      {Call::train, "average's warm-up", [](Arguments& a, Dice&) { a.options.average = Averaging{.warm_up = false}; },
       [](Arguments& a) { a.options.average = Averaging{}; }},
      choice(Call::train, "max_norm", o, &T::update, UpdateOptions{.max_norm = 2}),
      choice(Call::train, "initial loss scale", o, &T::update, UpdateOptions{.loss_scaling = LossScaling{}}),
      scaling("growth of the loss scale", {.growth = 3}),
      scaling("backoff of the loss scale", {.backoff = 0.25}),
      scaling("interval of the loss scale", {.interval = 7}),
      schedule("factor", PlateauSchedule{}, PlateauSchedule{.factor = 0.5}),
      schedule("patience", PlateauSchedule{}, PlateauSchedule{.patience = 5}),
      schedule("threshold", PlateauSchedule{}, PlateauSchedule{.threshold = 0.5}),
      schedule("lowest", PlateauSchedule{}, PlateauSchedule{.lowest = 0.5}),
      schedule("lowest", CosineSchedule{}, CosineSchedule{.lowest = 0.5}),
      schedule("every", StepSchedule{.every = 1}, StepSchedule{.every = 2}),
      schedule("factor", StepSchedule{.every = 1}, StepSchedule{.every = 1, .factor = 0.5}),
      schedule("milestones", StepSchedule{.milestones = {1, 2}}, StepSchedule{.milestones = {1, 3}}),
      {Call::train, "accumulate", [](Arguments& a, Dice&) { a.options.accumulate = a.options.batch; }},
      number(Call::train, "shift", o, &T::shift),
      number(Call::train, "flip", o, &T::flip),
      number(Call::train, "brightness", o, &T::brightness),
      number(Call::train, "contrast", o, &T::contrast),
      choice(Call::train, "backend", o, &T::backend, local::ConvolutionBackend::reference),
      number(Call::train, "tf32", o, &T::tf32),
      choice(Call::train, "gradients", o, &T::gradients, GradientReduction::majority),
      number(Call::train, "check_replicas", o, &T::check_replicas),
      number(Call::train, "allow_nonfinite", o, &T::allow_nonfinite),
      number(Call::train, "timed_steps", o, &T::timed_steps),
      number("checkpoint every_steps", &CheckpointOptions::every_steps),
      number("checkpoint every_seconds", &CheckpointOptions::every_seconds),
      number("checkpoint keep", &CheckpointOptions::keep),
      number("checkpoint resume", &CheckpointOptions::resume),
      {Call::train, "memory.recompute", [](Arguments& a, Dice&) { a.options.memory.recompute = "*"; }},
      {Call::train, "memory.offload", [](Arguments& a, Dice&) { a.options.memory.offload = "*"; }},
      {Call::train, "bucket_bytes", [](Arguments& a, Dice&) { a.options.bucket_bytes = 4096; }},
      {Call::train, "chunk_bytes", [](Arguments& a, Dice&) { a.options.chunk_bytes = 4096; }},
      {Call::train, "direct_bytes", [](Arguments& a, Dice&) { a.options.direct_bytes = 4096; }},
      {Call::train, "consolidate_below", [](Arguments& a, Dice&) { a.options.consolidate_below = 4096; }},
      {Call::train, "largest_overhead", [](Arguments& a, Dice&) { a.options.largest_overhead = 0.5; }},
      {Call::train, "multiplications_per_slab", [](Arguments& a, Dice&) { a.options.multiplications_per_slab = 5; }},
      {Call::train, "convolutions: problems", [](Arguments& a, Dice&) { a.options.convolutions = measured(); }},
      {Call::train, "work_per_copied_byte.flops",
       [](Arguments& a, Dice&) { a.options.work_per_copied_byte = WorkPerCopiedByte{}; }},
      {Call::train, "memory.limit", [](Arguments& a, Dice&) { a.options.memory.limit = Index{1} << 40; }},
      {Call::train, "checkpoint folder", [](Arguments& a, Dice&) { a.options.checkpoint.folder = "other"; }},
      {Call::network, "samples", [](Arguments& a, Dice& dice) { a.samples += dice(1, 9); }},
      choice(Call::network, "backend", n, &N::backend, local::ConvolutionBackend::reference),
      number(Call::network, "options.tf32", n, &N::tf32),
      number(Call::network, "options.inference", n, &N::inference),
      number(Call::network, "options.update", n, &N::update),
      number(Call::network, "options.input_gradient", n, &N::input_gradient),
      number(Call::network, "options.fuse_inference", n, &N::fuse_inference),
      number(Call::network, "options.fuse_batch_norm", n, &N::fuse_batch_norm),
      number(Call::network, "options.fuse_pooling", n, &N::fuse_pooling),
      number(Call::network, "options.sums_beside_backward", n, &N::sums_beside_backward),
      number(Call::network, "options.schedule_seed", n, &N::schedule_seed),
      number(Call::network, "options.dropout_seed", n, &N::dropout_seed),
      {Call::network, "options.recompute",
       [](Arguments& a, Dice&) {
         a.network_options.recompute = {{0, 0}};
       }},
      {Call::network, "options.offload", [](Arguments& a, Dice&) { a.network_options.offload = {0}; }},
      {Call::network, "options.direct_bytes",
       [](Arguments& a, Dice& dice) { a.network_options.direct_bytes = dice(0, 1000); }},
      {Call::network, "options.consolidate_below",
       [](Arguments& a, Dice& dice) { a.network_options.consolidate_below = dice(0, 1000); }},
      {Call::network, "options.chunk_bytes",
       [](Arguments& a, Dice& dice) { a.network_options.chunk_bytes = dice(1, 1000); }},
      {Call::network, "options.bucket_bytes",
       [](Arguments& a, Dice& dice) { a.network_options.bucket_bytes = dice(1, 1000); }},
      {Call::network, "options.multiplications_per_slab",
       [](Arguments& a, Dice&) { a.network_options.multiplications_per_slab = 5; }},
      {Call::network, "options.convolutions: problems",
       [](Arguments& a, Dice&) { a.network_options.convolutions = measured(); }},
      {Call::network, "options.work_per_copied_byte.flops",
       [](Arguments& a, Dice&) { a.network_options.work_per_copied_byte = WorkPerCopiedByte{}; }},
      {Call::network, "options.largest_overhead",
       [](Arguments& a, Dice& dice) { a.network_options.largest_overhead = 0.125 * static_cast<double>(dice(1, 9)); }},
  };
}

/// Of the network and of the strategy, which both calls compare.
std::vector<Change> changes_of_descriptions(Call call) {
  const auto layer = [](int number) { return "layer " + std::to_string(number); };
  return {
      {call, layer(1),
       [](Arguments& a, Dice& dice) {
         auto& convolution = std::get<Convolution>(a.network.layers[0].operation);
         if (dice(0, 1))
           convolution.filters += dice(1, 5);
         else
           convolution.bias = !convolution.bias;
       }},
      {call, layer(1), [](Arguments& a, Dice&) { a.network.layers[0].name = "first"; }},
      {call, layer(2), [](Arguments& a, Dice&) { a.network.layers.erase(a.network.layers.begin() + 1); }},
      {call, layer(2), [](Arguments& a, Dice&) { a.network.layers[1].operation = Sigmoid{}; }},
      {call, layer(2), [](Arguments& a, Dice&) { a.network.layers[1].inputs = {"input"}; }},
      {call, layer(static_cast<int>(lenet5(views::make_extents(1, {28, 28}, 1), 10).layers.size())),
       [](Arguments& a, Dice&) { a.network.layers.pop_back(); }},
      {call, "network's input",
       [](Arguments& a, Dice& dice) {
         a.network.input = views::make_extents(1, {28, 28 + dice(1, 9)}, 1);
       }},
      {call, "network's spatial dimensions", [](Arguments& a, Dice&) { a.network.spatial_rank = 3; }},
      {call, "loss", [](Arguments& a, Dice&) { a.network.loss = Loss::mean_squared_error; }},
      {call, "label smoothing", [](Arguments& a, Dice&) { a.network.label_smoothing = 0.25; }},
      {call, "rule 1 of the strategy", [](Arguments& a, Dice&) { a.strategy.rules[0].pattern = "conv?"; }},
      {call, "rule 2 of the strategy",
       [](Arguments& a, Dice& dice) { a.strategy.rules[1].split = LayerSplit::parse(dice(0, 1) ? "n2" : "h2"); }},
      {call, "rule 3 of the strategy",
       [](Arguments& a, Dice&) { a.strategy.rules[2].split.overlap = Overlap::recompute_halo; }},
      {call, "rule 3 of the strategy", [](Arguments& a, Dice&) { a.strategy.rules[2].split.filters = 2; }},
      {call, "rule 4 of the strategy",
       [](Arguments& a, Dice&) {
         a.strategy.rules.push_back({"x", {}});
       }},
  };
}

std::vector<Change> changes_of_data() {
  std::vector<Change> changes;
  const std::array sets{std::pair("training set", &Arguments::train), std::pair("test set", &Arguments::test)};
  for (const auto& [text, set] : sets) {
    const std::string name = text;
    const auto add = [&, s = set](const std::string& value, std::function<void(LabelledImages&, Dice&)> change) {
      changes.push_back({Call::train, name + "'s " + value, [=](Arguments& a, Dice& dice) { change(a.*s, dice); }});
    };
    add("image", [](LabelledImages& i, Dice&) { i.image = views::make_extents(1, {14, 56}, 1); });
    add("images", [](LabelledImages& i, Dice& dice) {
      i.labels.resize(i.labels.size() - static_cast<std::size_t>(dice(1, 3)));
      i.pixels.resize(i.labels.size() * static_cast<std::size_t>(i.image.size()));
    });
    add("classes", [](LabelledImages& i, Dice& dice) { i.classes += dice(1, 5); });
    add("scale", [](LabelledImages& i, Dice& dice) { i.scale *= 1.0 + 0.125 * static_cast<double>(dice(1, 8)); });
    add("mean", [](LabelledImages& i, Dice& dice) { i.mean += 0.125 * static_cast<double>(dice(1, 8)); });
    add("deviation", [](LabelledImages& i, Dice& dice) { i.deviation += 0.125 * static_cast<double>(dice(1, 8)); });
    add("labels", [](LabelledImages& i, Dice& dice) {
      auto& label = i.labels[static_cast<std::size_t>(dice(0, i.size() - 1))];
      label = static_cast<std::uint8_t>((label + dice(1, 9)) % 10);
    });
    add("pixels", [](LabelledImages& i, Dice& dice) {
      i.pixels[static_cast<std::size_t>(dice(0, static_cast<Index>(i.pixels.size()) - 1))] ^=
          static_cast<std::uint8_t>(1 << dice(0, 7));
    });
  }
  return changes;
}

std::vector<Change> changes_of_tuning() {
  const auto line = [](int number) { return "line " + std::to_string(number) + " of the tuning"; };
  return {
      {Call::tuning, line(2), [](Arguments& a, Dice& dice) { a.tuning.ranks += static_cast<int>(dice(1, 9)); }},
      {Call::tuning, line(3), [](Arguments& a, Dice& dice) { a.tuning.nodes += static_cast<int>(dice(1, 9)); }},
      {Call::tuning, line(4), [](Arguments& a, Dice&) { a.tuning.latency *= 1.5; }},
      {Call::tuning, line(7), [](Arguments& a, Dice&) { a.tuning.measurements[0].seconds *= 2; }},
      {Call::tuning, line(7), [](Arguments& a, Dice&) { a.tuning.measurements.clear(); }},
  };
}

std::vector<Change> all_changes() {
  std::vector<Change> all;
  for (auto& some : {changes_of_optimisers(), changes_of_options(), changes_of_descriptions(Call::train),
                     changes_of_descriptions(Call::network), changes_of_data(), changes_of_tuning()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// The text of the error; of another error with its kind.
std::string error_of(const comm::Communicator& comm, const Arguments& a, const Arguments& of_all, Call call) {
  const Queue<> queue;
  try {
    if (call == Call::train) {
      nn::train<float>(comm, a.network, a.strategy, a.train, a.test, a.options);
    } else if (call == Call::network) {
      Parameters<float> parameters(queue, of_all.network, 1);
      const Network<float> network(comm, queue, a.network, a.strategy, a.samples, parameters, a.network_options);
    } else {
      comm.set_tuning(a.tuning);
    }
  } catch (const InvalidArgument& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another error: ") + e.what();
  }
  return "no error";
}

TEST(ReplicatedArguments, ThatDifferOnOneRankAreAnErrorThatNamesTheValueAndTheRanks) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) GTEST_SKIP() << "needs a second rank";
  comm.set_stuck_after(std::chrono::seconds(20));
  const std::vector<Change> changes = all_changes();
  const int trials = aloni::test::random_cases(4 * static_cast<int>(changes.size()));
  const char* const transport = std::getenv("ALONI_TEST_TRANSPORT");
  aloni::test::Experiment experiment("arguments", std::to_string(comm.size()) + (transport ? transport : ""),
                                     comm.rank() == 0);
  for (int trial = 0; trial < trials; trial += aloni::test::sanitized ? 3 : 1) {
    Dice dice(static_cast<std::uint64_t>(trial));  // equal on all ranks
    const Change& change = changes[static_cast<std::size_t>(trial) % changes.size()];
    const int other = static_cast<int>(dice(0, comm.size() - 1));
    SCOPED_TRACE("seed " + std::to_string(trial) + ": " + change.name + " on rank " + std::to_string(other));
    const int failed_before = aloni::test::failed_expectations();
    Arguments of_all = random_arguments(dice, comm);
    change.prepare(of_all);
    Arguments mine = of_all;
    if (comm.rank() == other) change.apply(mine, dice);
    const std::string text = error_of(comm, mine, of_all, change.call);
    std::vector<int> equal(static_cast<std::size_t>(comm.size()));
    std::iota(equal.begin(), equal.end(), 0);
    std::erase(equal, other);
    EXPECT_THAT(text, testing::AllOf(testing::StartsWith("aloni::"), HasSubstr(" " + change.name + " = "),
                                     HasSubstr(" on " + comm::name_ranks({other})),
                                     HasSubstr(" on " + comm::name_ranks(equal)), HasSubstr(" on all ranks")));
    std::string of_first = text;
    comm.broadcast(of_first, 0);  // the communicator is usable after the error
    EXPECT_EQ(text, of_first);
    const bool good = aloni::test::failed_expectations() == failed_before;
    experiment.count(comm.all_reduce(good ? 1 : 0, comm::Reduction::min) == 1);
  }
}

}  // namespace test_replicated
}  // namespace aloni::nn
