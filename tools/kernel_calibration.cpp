#include <aloni/tools/kernel_calibration.hpp>

#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine_file.hpp>
#include <aloni/model/measure_kernels.hpp>
#include <aloni/model/sample_networks.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/tools/kernel_measurement.hpp>
#include <aloni/tools/kernels_in_steps.hpp>
#include <aloni/tools/learn_kernels.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
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

/// Whether a step of the sample with its gradients fits into the memory of a rank, beside other programs.
bool fits(const std::vector<model::KernelTask>& tasks, const model::Machine& machine) {
  const nn::StepPlan& plan = *tasks.front().plan;
  const nn::MemoryLayout layout = nn::lay_out_memory({&plan}, description_of(machine, plan.ranks));
  return machine.memory_bytes <= 0 || 2 * static_cast<double>(layout.bytes()) < machine.memory_bytes;
}

std::vector<model::PlannedNetwork> samples_for(const comm::Communicator& comm,
                                               const KernelCalibrationOptions& options) {
  return model::sample_networks(options.most_networks, options.seed, {.pairs = comm.size() % 2 == 0});
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
  const model::Machine planned = model::machine_of_samples(machine);
  model::KernelTable& table = table_of(machine);
  KindCounts counts;
  for (const model::PlannedNetwork& sample : samples_for(comm, options)) {
    bool over = false;
    std::vector<model::KernelTask> tasks = model::kernel_tasks({sample}, planned, table);
    std::erase_if(tasks, [&](const model::KernelTask& task) { return !counts.wants(task); });
    if (tasks.empty()) continue;
    if (has_ranks_for(comm, sample) && fits(tasks, planned)) {
      over = share() > 1;
      if (!over) measure_in_steps(comm, sample, tasks, table);
    } else {
      // One for each network: it knows plans by their address, and the next plans may lie where these lay.
      const model::MeasureKernel measure = kernel_measurement(comm, planned, {.runs = 5, .least_seconds = 0});
      model::measure_kernels(tasks, measure, table, [&](const model::KernelProgress&) {
        over = over || share() > 1;
        return !over;
      });
    }
    progress(std::min(1.0, share()), table.times.size());
    save();
    if (over) break;
  }
}

std::vector<LearnedSummary> learn_kernels(const comm::Communicator& comm, model::Machine& machine,
                                          const KernelCalibrationOptions& options) {
  const model::KernelTable& table = table_of(machine);
  std::map<std::pair<model::KernelKind, nn::ElementType>, std::vector<KernelTime>> times;
  const model::Machine planned = model::machine_of_samples(machine);
  std::set<std::string> found;  // each problem of the table once; networks behind the last one of them are not planned
  for (const model::PlannedNetwork& sample : samples_for(comm, options)) {
    if (found.size() == table.times.size()) break;
    for (const model::KernelTask& task : model::kernel_tasks({sample}, planned, {})) {
      const auto measured = table.times.find(task.key);
      if (measured == table.times.end() || !found.insert(task.key).second) continue;
      const model::KernelProblem problem = task.problem();
      // The time of different calls together teaches nothing about one of them.
      if (problem.calls.empty() || !are_equal(problem.calls)) continue;
      const model::KernelCall& call = problem.calls.front();
      times[{call.kind, call.type}].push_back(
          {call, measured->second.seconds / static_cast<double>(problem.calls.size())});
    }
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
