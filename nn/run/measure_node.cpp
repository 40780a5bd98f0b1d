#include <aloni/nn/run/measure_node.hpp>

#include <aloni/core/core_speed.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/other_code.hpp>
#include <aloni/core/random.hpp>
#include <aloni/core/stopwatch.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/plan/isolated_node.hpp>
#include <aloni/nn/run/binder.hpp>
#include <aloni/nn/run/plan_memory.hpp>
#include <aloni/nn/step.hpp>
#include <aloni/nn/step_times.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {

namespace {

constexpr Index line_bytes = 64;
/// The code of a kernel stays near while a step uses no more data than this: half of the second cache of a core.
constexpr double code_bytes = 256 << 10;

/// Reads and writes one word of each cache line of `rows` runs of `bytes` bytes each. The values stay.
template <class Exec>
void touch(const Exec& exec, std::byte* data, Index bytes) {
  using Word = std::uint8_t;
  const Index lines = (bytes + line_bytes - 1) / line_bytes;
  auto* const words = reinterpret_cast<Word*>(data);
  Kokkos::parallel_for(
      "aloni::nn::touch", Kokkos::RangePolicy<Exec>(exec, 0, lines), KOKKOS_LAMBDA(Index i) {
        volatile Word* const word = words + i * line_bytes;
        *word = *word;
      });
}

/// Values for any kernel: finite, no denormals, magnitudes from 0.5 to 1.5, of both signs. They repeat after `period`.
template <class U, class Exec>
void fill_random(const Exec& exec, U* data, Index elements) {
  constexpr Index period = Index{1} << 14;
  Kokkos::parallel_for(
      "aloni::nn::fill_operand", Kokkos::RangePolicy<Exec>(exec, 0, std::min(period, elements)),
      KOKKOS_LAMBDA(Index i) {
        // Of good quality: a processor learns the signs of a simple pattern.
        const std::uint64_t bits = random::integer(1, 0, static_cast<std::uint64_t>(i));
        const float size = 0.5f + static_cast<float>((bits >> 8) & 0xFFFF) / 65536.0f;
        data[i] = static_cast<U>((bits & 1) != 0 ? -size : size);
      });
  if (elements <= period) return;
  Kokkos::parallel_for(
      "aloni::nn::fill_operand", Kokkos::RangePolicy<Exec>(exec, period, elements),
      KOKKOS_LAMBDA(Index i) { data[i] = data[i % period]; });
}
template <class U, class Exec>
void fill_constant(const Exec& exec, U* data, Index elements, U value) {
  Kokkos::parallel_for(
      "aloni::nn::fill_operand", Kokkos::RangePolicy<Exec>(exec, 0, elements),
      KOKKOS_LAMBDA(Index i) { data[i] = value; });
}
/// 0, 1, …, period - 1, 0, …: labels.
template <class Exec>
void fill_labels(const Exec& exec, std::int32_t* data, Index elements, Index period) {
  Kokkos::parallel_for(
      "aloni::nn::fill_operand", Kokkos::RangePolicy<Exec>(exec, 0, elements),
      KOKKOS_LAMBDA(Index i) { data[i] = static_cast<std::int32_t>(i % period); });
}

double median(const std::vector<double>& ascending) {
  const std::size_t n = ascending.size();
  return n % 2 == 1 ? ascending[n / 2] : (ascending[n / 2 - 1] + ascending[n / 2]) / 2;
}

template <class Exec>
void run_nothing(const Exec& exec) {
  Kokkos::parallel_for("aloni::nn::nothing", Kokkos::RangePolicy<Exec>(exec, 0, 1), KOKKOS_LAMBDA(Index){});
}
/// The time by which a kernel without work, and the wait for it, takes longer than such a kernel among others.
template <class Exec>
double seconds_of_wait(const Queue<Exec>& queue) {
  const auto seconds_of_each = [&](int kernels) {
    std::vector<double> all;
    for (int run = 0; run < 20; ++run) {
      const std::int64_t start = trace_now();
      for (int i = 0; i < kernels; ++i) run_nothing(queue.space());
      queue.fence("aloni::nn::measure_node: kernels without work are complete");
      all.push_back(static_cast<double>(trace_now() - start) * 1e-9 / kernels);
    }
    std::ranges::sort(all);
    return median(all);
  };
  return std::max(0.0, seconds_of_each(1) - seconds_of_each(100));
}

/// An isolated node with memory and kernels.
template <class T, class Exec>
class NodeRunner {
 public:
  using Mem = typename Exec::memory_space;
  using Parameter = parameter_type_t<T>;
  using AllParameters = Parameters<Parameter, Exec>;
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;

  NodeRunner(const comm::Communicator& comm, const Queue<Exec>& queue, const StepPlan& plan, const MemoryLayout& layout,
             int node, const MachineDescription& machine, const MeasureOptions& options)
      : comm_(comm), queue_(queue), alone_(isolate(plan, node, layout)), options_(options), memory_(comm, queue) {
    for (const Operand& operand : alone_.operands)
      others_bytes_ = std::clamp(static_cast<Index>(operand.distance), others_bytes_, options.cache_bytes);
    make_parameters();
    allocate(machine);
    fill();
    binder_.emplace(comm_, queue_, memory_, machine, parameters_ ? &*parameters_ : nullptr);
    binder_->set_update(optimiser(), 1);
    for (int n = 0; n < alone_.node(); ++n) binder_->bind(alone_.plan, n, n == alone_.weights ? weights_ : before_);
    binder_->bind(alone_.plan, alone_.node(), step_);
    for (Step<Exec>* const step : {&before_, &weights_, &step_}) step->prepare();
    others_ = Kokkos::View<std::byte*, Mem>("aloni::nn::other_operands", static_cast<std::size_t>(others_bytes_));
    before_.execute(queue_, comm_, stopwatch_);
    if constexpr (!on_host) seconds_of_wait_ = seconds_of_wait(queue_);
  }

  /// Seconds of one run.
  double run() {
    replay();
    weights_.execute(queue_, comm_, stopwatch_);
    queue_.fence("aloni::nn::measure_node: the clock starts");
    comm_.barrier();
    times_.clear();
    times_.begin(nullptr);
    step_.execute(queue_, comm_, stopwatch_, &times_);
    const StepTimes::Action& action = times_.actions(times_.executions().front()).front();
    const double seconds = static_cast<double>(action.end - action.start) * 1e-9;
    return on_host ? seconds : std::max(seconds - seconds_of_wait_, seconds / 10);
  }

 private:
  Optimiser optimiser() const {
    switch (alone_.plan.update.value_or(OptimiserKind::sgd)) {
      case OptimiserKind::sgd:
        break;
      case OptimiserKind::adam:
        return AdamOptions{.learning_rate = 1e-6};
      case OptimiserKind::lars:
        return LarsOptions{.learning_rate = 1e-6};
    }
    return SgdOptions{.learning_rate = 1e-6};
  }

  const PlanBuffer& buffer(BufferId b) const { return alone_.plan.buffers[static_cast<std::size_t>(b)]; }

  void make_parameters() {
    if (!alone_.parameters) return;
    const Work& work = alone_.plan.nodes.back().work;
    const auto* const accumulation = std::get_if<AccumulationWork>(&work);
    parameters_.emplace(comm_, queue_, *alone_.parameters, 1,
                        accumulation ? ParameterUse::accumulation : ParameterUse::training, kind_of(optimiser()),
                        alone_.plan.update_options);
    if (accumulation) return use_gradients_of(*accumulation);
    const std::vector<UpdatedTensor>* tensors = nullptr;
    if (const auto* update = std::get_if<OptimiserWork>(&work)) tensors = &update->tensors;
    if (const auto* norms = std::get_if<NormWork>(&work)) tensors = &norms->tensors;
    if (!tensors) return;
    int i = 0;
    for (const UpdatedTensor& t : *tensors) {
      fill_random(queue_.space(), parameters_->gradient(i).data(), buffer(t.gradient).box.size());
      memory_.use(buffer(t.gradient).name, parameters_->gradient(i).data());
      if (t.value != no_buffer) memory_.use(buffer(t.value).name, parameters_->value(i).data());
      for (std::size_t k = 0; k < t.states.size(); ++k)
        memory_.use(buffer(t.states[k]).name, parameters_->state(i, static_cast<int>(k)).data());
      for (const BufferId b : t.states) given_.insert(b);
      given_.insert({t.gradient, t.value});
      ++i;
    }
  }

  /// An earlier micro-batch, which the others resemble.
  void use_gradients_of(const AccumulationWork& work) {
    for (std::size_t k = 0; k < work.gradients.size(); ++k) {
      const int i = static_cast<int>(k);
      fill_random(queue_.space(), parameters_->gradient(i).data(), buffer(work.gradients[k]).box.size());
      fill_random(queue_.space(), parameters_->summed_gradient(i).data(), buffer(work.gradients[k]).box.size());
      memory_.use(buffer(work.gradients[k]).name, parameters_->gradient(i).data());
      memory_.use(buffer(work.sums[k]).name, parameters_->summed_gradient(i).data());
      given_.insert({work.gradients[k], work.sums[k]});
    }
    parameters_->gradient_sum()->begin({.samples = 1});
    parameters_->gradient_sum()->end();  // the next one adds
  }

  /// Roots of the buffers that the nodes of the plan use.
  std::set<BufferId> buffers_used() const {
    std::set<BufferId> used;
    const auto add = [&](BufferId b) {
      if (b != no_buffer && !given_.contains(b) && !buffer(alone_.plan.root(b)).by_kernels)
        used.insert(alone_.plan.root(b));
    };
    for (const PlanNode& node : alone_.plan.nodes) {
      for (const auto* regions : {&node.reads, &node.writes})
        for (const PlanRegion& r : *regions) add(r.buffer);
      // The binder makes views of all buffers of a work, and of all parts of weights, whatever the kernel uses.
      std::visit([&](const auto& work) { add_named(work, add); }, node.work);
    }
    return used;
  }

  template <class Add>
  void add_weights(int weights, const Add& add) const {
    add(alone_.plan.convolution_weights[static_cast<std::size_t>(weights)].w);
    add(alone_.plan.convolution_weights[static_cast<std::size_t>(weights)].dw);
  }
  // Buffers that a work names beside the regions of its node.
  template <class Add>
  void add_named(const ConvolutionWork& w, const Add& add) const {
    add_weights(w.weights, add);
    for (const BufferId b : {w.source, w.target, w.bias, w.copy}) add(b);
  }
  template <class Add>
  void add_named(const FilterGradientWork& w, const Add& add) const {
    add_weights(w.weights, add);
    for (const BufferId b : {w.x, w.dy, w.dw, w.db}) add(b);
  }
  template <class Add>
  void add_named(const WeightsWork& w, const Add& add) const {
    add_weights(w.weights, add);
  }
  template <class Add>
  void add_named(const DenseWork& w, const Add& add) const {
    for (const BufferId b : {w.x, w.y, w.dx, w.dy, w.w, w.b, w.dw, w.db, w.input_copy, w.output_copy}) add(b);
  }
  template <class Add>
  void add_named(const NormalisationWork& w, const Add& add) const {
    for (const BufferId b : {w.x, w.y, w.dx, w.dy, w.summand, w.gamma, w.beta, w.dgamma, w.dbeta, w.sums, w.known_sums,
                             w.all_sums, w.squares, w.statistics, w.partial})
      add(b);
  }
  template <class Add>
  void add_named(const LossWork& w, const Add& add) const {
    for (const BufferId b : {w.output, w.targets, w.gradient, w.sums, w.global}) add(b);
  }
  template <class Add>
  void add_named(const PointwiseWork& w, const Add& add) const {
    for (const PointwiseInput& input : w.inputs) add(input.buffer);
    add(w.output.buffer);
  }
  template <class Add, class Other>
  void add_named(const Other& w, const Add& add) const {
    if constexpr (requires { w.source, w.target; }) add(w.source), add(w.target);
    if constexpr (requires { w.argmax; }) add(w.argmax);
    if constexpr (requires { w.bias, w.target; }) add(w.bias), add(w.target);
    if constexpr (requires { w.dy, w.db; }) add(w.dy), add(w.db);
    if constexpr (requires { w.sums, w.target; }) add(w.sums);
    if constexpr (requires { w.output, w.targets; }) add(w.output), add(w.targets), add(w.sums);
  }

  void allocate(const MachineDescription& machine) {
    MemoryLayout layout;
    const bool shares = machine.shared_memory && alone_.plan.ranks > 1;
    for (const BufferId b : buffers_used()) {
      const PlanBuffer& used = buffer(b);
      const MemoryKind memory = memory_kind(used, shares);
      Index& all = layout.bytes_of(memory);
      layout.places[used.name] = {.memory = memory, .offset = all, .bytes = used.bytes()};
      all += (used.bytes() + MemoryLayout::alignment - 1) / MemoryLayout::alignment * MemoryLayout::alignment;
    }
    memory_.allocate({}, layout);
  }

  /// The number of elements that share a mean, in a stage of a normalisation; else 1.
  double summands() const {
    const auto* const stage = std::get_if<NormalisationWork>(&alone_.plan.nodes.back().work);
    return stage ? static_cast<double>(std::max<Index>(1, stage->count)) : 1;
  }
  BufferId statistics() const {
    const auto* const stage = std::get_if<NormalisationWork>(&alone_.plan.nodes.back().work);
    return stage ? stage->statistics : no_buffer;
  }
  Index classes() const {
    const Work& work = alone_.plan.nodes.back().work;
    if (const auto* loss = std::get_if<LossWork>(&work)) return loss->region.extent(views::Dim::channel);
    if (const auto* metrics = std::get_if<MetricsWork>(&work)) return metrics->region.extent(views::Dim::channel);
    return 1;
  }

  void fill() {
    const Exec& exec = queue_.space();
    for (const BufferId b : buffers_used()) {
      const Index n = buffer(b).box.size();
      switch (buffer(b).type) {
        case ElementType::float32:
          fill_random(exec, memory_.template data<float>(alone_.plan, b), n);
          break;
        case ElementType::bfloat16:
          fill_random(exec, memory_.template data<comm::bfloat16>(alone_.plan, b), n);
          break;
        case ElementType::float16:
          fill_random(exec, memory_.template data<comm::float16>(alone_.plan, b), n);
          break;
        case ElementType::float64:
          fill_doubles(exec, b, n);
          break;
        case ElementType::int32:
          fill_labels(exec, memory_.template data<std::int32_t>(alone_.plan, b), n, std::max<Index>(1, classes()));
          break;
      }
    }
  }
  void fill_doubles(const Exec& exec, BufferId b, Index n) {
    double* const data = memory_.template data<double>(alone_.plan, b);
    if constexpr (std::is_same_v<Parameter, double>) {
      if (buffer(b).role != BufferRole::workspace) return fill_random(exec, data, n);
    }
    // Sums of x and of x², both half of the number of elements, have the mean 1/2 and the variance 1/4.
    fill_constant(exec, data, n, b == statistics() ? 0.5 : 0.5 * summands());
  }

  /// Uses the operands in their order, and other memory in between. It is the same other memory each time, as large as
  /// that of a step: a shared cache keeps a working set that fits, and other memory would drive it out.
  void replay() {
    Index distance = others_bytes_;
    double age = std::min(options_.longest_wait, alone_.operands.empty() ? 0.0 : age_of(alone_.operands.front()));
    next_other_ = 0;
    // Before the next operand is used: the distance and the time between it and the last one.
    const auto approach = [&](Index to_distance, double to_age) {
      const std::int64_t end = trace_now() + static_cast<std::int64_t>(1e9 * (age - to_age));
      touch_others(distance - to_distance);
      distance = to_distance;
      age = to_age;
      // A loop that only reads the clock leaves the core at a lower speed: for a millisecond after a wait of 30 ms,
      // and kernels took 1.5 times as long.
      while (trace_now() < end) seconds_of_arithmetic();
    };
    for (const Operand& operand : alone_.operands) {
      approach(std::min(static_cast<Index>(operand.distance), others_bytes_), std::min(age, age_of(operand)));
      touch_region(operand.region);
    }
    approach(0, 0);
    if (on_host && alone_.code_distance > code_bytes) run_other_code();
  }
  double age_of(const Operand& o) const {
    return o.flops / options_.flops_per_second + o.bytes / options_.bytes_per_second;
  }
  void touch_others(Index bytes) {
    while (bytes > 0) {
      const Index n = std::min(bytes, others_bytes_ - next_other_);
      touch(queue_.space(), others_.data() + next_other_, n);
      next_other_ = (next_other_ + n) % others_bytes_;
      bytes -= n;
    }
  }
  /// From the first to the last element of each row of a region, or all of a region without gaps.
  void touch_region(const PlanRegion& r) {
    const PlanBuffer& b = buffer(r.buffer);
    const Index size = bytes_of(b.type);
    auto* const data = memory_.template data<std::byte>(alone_.plan, r.buffer);
    if (r.box == b.box) return touch(queue_.space(), data, b.bytes());
    const auto whole = views::extents_of(b.box).values;
    const Index row = ((r.box.hi[3] - r.box.lo[3] - 1) * whole[4] + r.box.hi[4] - r.box.lo[4]) * size;
    for (Index n = r.box.lo[0]; n < r.box.hi[0]; ++n)
      for (Index d = r.box.lo[1]; d < r.box.hi[1]; ++d)
        for (Index h = r.box.lo[2]; h < r.box.hi[2]; ++h) {
          const Index at = ((((n - b.box.lo[0]) * whole[1] + d - b.box.lo[1]) * whole[2] + h - b.box.lo[2]) * whole[3] +
                            r.box.lo[3] - b.box.lo[3]) *
                               whole[4] +
                           r.box.lo[4] - b.box.lo[4];
          touch(queue_.space(), data + at * size, row);
        }
  }

  comm::Communicator comm_;
  Queue<Exec> queue_;
  IsolatedNode alone_;
  MeasureOptions options_;
  std::optional<AllParameters> parameters_;
  std::set<BufferId> given_;  ///< buffers with the memory of the parameters
  PlanMemory<Exec> memory_;
  std::optional<Binder<T, Exec>> binder_;
  Step<Exec> before_, weights_, step_;
  Stopwatch stopwatch_;
  StepTimes times_{4};
  Kokkos::View<std::byte*, Mem> others_;
  Index others_bytes_ = 0, next_other_ = 0;
  double seconds_of_wait_ = 0;  ///< in each run on a device
};

void check(const MeasureOptions& o) {
  const auto refuse = [](const char* name, const std::string& value, const char* expected) {
    throw InvalidArgument("aloni::nn::measure_node", std::string("options.") + name, value, expected);
  };
  if (o.runs < 1) refuse("runs", std::to_string(o.runs), "at least 1");
  if (o.most_runs < o.runs) refuse("most_runs", std::to_string(o.most_runs), "at least options.runs");
  if (o.warm_up_runs < 1) refuse("warm_up_runs", std::to_string(o.warm_up_runs), "at least 1");
  if (!(o.least_seconds >= 0)) refuse("least_seconds", std::to_string(o.least_seconds), "at least 0");
  if (o.cache_bytes < line_bytes) refuse("cache_bytes", std::to_string(o.cache_bytes), "at least 64");
}

}  // namespace

NodeTime summary(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  NodeTime time{.seconds = median(seconds), .runs = static_cast<int>(seconds.size())};
  const std::size_t quarter = seconds.size() / 4;
  if (time.seconds > 0) time.spread = (seconds[seconds.size() - 1 - quarter] - seconds[quarter]) / 2 / time.seconds;
  return time;
}

template <class T, class Exec>
NodeTime measure_node(const comm::Communicator& comm, const Queue<Exec>& queue, const StepPlan& plan,
                      const MemoryLayout& layout, int node, const MachineDescription& machine,
                      const MeasureOptions& options) {
  const std::unique_ptr<NodeRunner<T, Exec>> runner =
      comm::collectively(comm, "aloni::nn::measure_node: memory and kernels of a node", [&] {
        check(options);
        return std::make_unique<NodeRunner<T, Exec>>(comm, queue, plan, layout, node, machine, options);
      });
  constexpr bool on_host = NodeRunner<T, Exec>::on_host;
  double seconds = 0;
  for (int i = 0; i < options.warm_up_runs; ++i) seconds = runner->run();
  seconds = std::max(1e-9, comm.all_reduce(seconds, comm::Reduction::max));
  const int runs =
      std::clamp(static_cast<int>(std::min(1e6, options.least_seconds / seconds)), options.runs, options.most_runs);
  CoreSpeed speed;
  std::vector<double> all, at_full_speed;
  const auto missing = [&] {
    return comm.all_reduce(std::int64_t{runs} - static_cast<std::int64_t>(at_full_speed.size()), comm::Reduction::max);
  };
  for (std::int64_t next = runs; next > 0 && static_cast<int>(all.size()) < 3 * runs; next = missing()) {
    for (std::int64_t i = 0; i < next; ++i) {
      const bool before = !on_host || speed.is_full();
      const std::int64_t switches = preemptions();
      all.push_back(runner->run());
      if (before && preemptions() == switches && (!on_host || speed.is_full())) at_full_speed.push_back(all.back());
    }
  }
  return summary(at_full_speed.empty() ? std::move(all) : std::move(at_full_speed));
}

#define INSTANTIATE(T, Exec)                                                                              \
  template NodeTime measure_node<T, Exec>(const comm::Communicator&, const Queue<Exec>&, const StepPlan&, \
                                          const MemoryLayout&, int, const MachineDescription&, const MeasureOptions&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
