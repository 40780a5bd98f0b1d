#include <aloni/tools/kernel_calibration.hpp>

#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/measure_kernels.hpp>
#include <aloni/model/sample_networks.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/tools/kernel_measurement.hpp>
#include <aloni/tools/learn_kernels.hpp>
#include <aloni/tools/step_seconds.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace aloni::tools {

namespace {

/// Networks have many more kernels of some kinds than convolutions, which take most of the time of a step. The table
/// gets at most as many of another kind as of one pass of convolutions.
class KindCounts {
 public:
  bool wants(const model::KernelTask& task) {
    const model::KernelProblem problem = task.problem();
    if (problem.calls.empty()) return false;
    const model::KernelKind kind = problem.calls.front().kind;
    const int convolutions = of(model::KernelKind::convolution_forward);
    if (of(kind) > few && of(kind) > convolutions) return false;
    ++of(kind);
    return true;
  }

 private:
  static constexpr int few = 20;
  int& of(model::KernelKind kind) { return counts_[static_cast<std::size_t>(kind)]; }

  std::array<int, model::kernel_kinds> counts_{};
};

/// Its kernels are also timed in steps. It is larger than the caches, as are the networks that users train.
model::PlannedNetwork network_of_steps() {
  return {.network = nn::make_model("resnet50", {.input = views::make_extents(1, {64, 64}, 3)}),
          .strategy = nn::Strategy::uniform({}),
          .samples = 2};
}

/// As those of a convolution with a call for each sample.
bool are_equal(const std::vector<model::KernelCall>& calls) {
  return std::ranges::all_of(calls, [&](const model::KernelCall& call) { return call == calls.front(); });
}

}  // namespace

model::KernelTable& table_of(model::Machine& machine) { return own_kernels(machine); }

void add_kernels(const comm::Communicator& comm, model::Machine& machine, const KernelCalibrationOptions& options,
                 const std::function<void(double share, std::size_t kernels)>& progress,
                 const std::function<void()>& save) {
  const auto begin = std::chrono::steady_clock::now();
  // The clocks of ranks differ, so one of them decides.
  const auto share = [&] {
    const std::chrono::duration<double> past = std::chrono::steady_clock::now() - begin;
    return comm.all_reduce(comm.rank() == 0 ? past.count() / options.seconds : 0.0, comm::Reduction::max);
  };
  // More runs of short kernels would cost two thirds of the time, and more kernels teach more. Between calibrations
  // times differ by 6 %, and models are wrong by more: of random kernels half as many runs are enough.
  const model::Machine planned = model::machine_of_samples(machine);
  const model::MeasureKernel measure = kernel_measurement(comm, planned, {.least_seconds = 0});
  model::KernelTable& table = table_of(machine);
  const std::vector<model::KernelTask> of_steps = model::kernel_tasks({network_of_steps()}, planned, table);
  constexpr double share_of_steps = 0.25;
  bool complete = false;
  model::measure_kernels(of_steps, measure, table, [&](const model::KernelProgress& p) {
    complete = p.next == nullptr;
    return share() < share_of_steps;
  });
  // At once, since the speed of a shared host changes within minutes. After --resume there is nothing to do.
  if (complete && !of_steps.empty()) add_step_seconds(comm, network_of_steps(), table);
  progress(std::min(1.0, share()), table.times.size());

  KindCounts counts;
  for (const model::PlannedNetwork& sample : model::sample_networks(options.most_networks, options.seed)) {
    bool over = false;
    std::vector<model::KernelTask> tasks = model::kernel_tasks({sample}, planned, table);
    std::erase_if(tasks, [&](const model::KernelTask& task) { return !counts.wants(task); });
    // One for each network: it knows plans by their address, and the next plans may lie where these lay.
    const model::MeasureKernel measure_sample = kernel_measurement(comm, planned, {.runs = 5, .least_seconds = 0});
    model::measure_kernels(tasks, measure_sample, table, [&](const model::KernelProgress&) {
      over = over || share() > 1;
      return !over;
    });
    progress(std::min(1.0, share()), table.times.size());
    save();
    if (over) break;
  }
}

std::vector<LearnedSummary> learn_kernels(const comm::Communicator& comm, model::Machine& machine,
                                          const KernelCalibrationOptions& options) {
  const model::KernelTable& table = table_of(machine);
  std::map<std::pair<model::KernelKind, nn::ElementType>, std::vector<KernelTime>> times;
  const std::vector<model::PlannedNetwork> samples = model::sample_networks(options.most_networks, options.seed);
  for (const model::KernelTask& task : model::kernel_tasks(samples, model::machine_of_samples(machine), {})) {
    const auto measured = table.times.find(task.key);
    if (measured == table.times.end()) continue;
    const model::KernelProblem problem = task.problem();
    // The time of different calls together teaches nothing about one of them.
    if (problem.calls.empty() || !are_equal(problem.calls)) continue;
    const model::KernelCall& call = problem.calls.front();
    times[{call.kind, call.type}].push_back(
        {call, measured->second.seconds / static_cast<double>(problem.calls.size())});
  }
  std::erase_if(machine.learned, [&](const model::LearnedKernel& learned) {
    return learned.ranks_per_node == machine.ranks_per_node && learned.threads_per_rank == machine.threads_per_rank;
  });
  const comm::Communicator alone = comm.split(comm.rank(), 0);
  std::vector<LearnedSummary> summaries;
  for (const auto& [kind, known] : times) {
    LearnedSummary summary{kind.first, known.size()};
    for (const KernelTime& time : known) {
      const double roofline =
          machine.processor.kernel_seconds +
          model::roofline_seconds(machine, time.call, machine.ranks_per_node, machine.threads_per_rank);
      summary.roofline_error += std::abs(roofline / time.seconds - 1) / static_cast<double>(known.size());
    }
    if (known.size() >= least_times_to_learn) {
      machine.learned.push_back(learn_kernel(alone, known,
                                             {.ranks_per_node = machine.ranks_per_node,
                                              .threads_per_rank = machine.threads_per_rank,
                                              .seed = options.seed}));
      summary.learned_error = machine.learned.back().relative_error;
    }
    summaries.push_back(summary);
  }
  // Ranks on other processors may have other last bits.
  std::string text = comm.rank() == 0 ? model::to_json_text(machine) : "";
  comm.broadcast(text, 0);
  machine = model::parse_machine(text, "the calibration of rank 0");
  return summaries;
}

}  // namespace aloni::tools
