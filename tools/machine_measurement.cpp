#include <aloni/core/comm/calibration.hpp>
#include <aloni/core/comm/device_links.hpp>
#include <aloni/core/comm/link_probe.hpp>
#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/memory.hpp>
#include <aloni/core/memory_probes.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/halo/exchange.hpp>
#include <aloni/model/step_limits.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/gemm.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/measure_node.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/tools/machine_measurement.hpp>
#include <aloni/tools/median.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace aloni::tools {

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Clock = std::chrono::steady_clock;
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Least seconds of f() in the runs of about `seconds`.
template <class F>
double least_seconds(double seconds, const F& f) {
  f();
  double best = std::numeric_limits<double>::infinity();
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    f();
    best = std::min(best, seconds_since(start));
  } while (seconds_since(begin) < seconds);
  return best;
}

template <class F>
double median_seconds(int runs, const F& f) {
  std::vector<double> all;
  for (int i = 0; i < 3; ++i) f();
  for (int i = 0; i < runs; ++i) {
    const auto start = Clock::now();
    f();
    all.push_back(seconds_since(start));
  }
  std::ranges::sort(all);
  return all[all.size() / 2];
}

/// f() on rank 0 while the others wait; its result on all ranks.
template <class F>
double on_first_rank(const comm::Communicator& comm, const F& f) {
  comm.barrier();
  return comm.all_reduce(comm.rank() == 0 ? f() : 0.0, comm::Reduction::max);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

/// Flops per second of all threads of this rank. On a device the work takes far longer than a launch and a wait.
template <class T>
double matrix_product_rate(double time) {
  constexpr Index n = on_host ? 512 : 4096;
  constexpr int products = on_host ? 1 : 8;
  const Queue<Exec> queue;
  using View = Kokkos::View<T*, typename Exec::memory_space>;
  const View a("aloni::tools: a", n * n), b("aloni::tools: b", n * n), c("aloni::tools: c", n * n);
  Kokkos::deep_copy(queue.space(), a, T(0.5));
  Kokkos::deep_copy(queue.space(), b, T(0.25));
  const double seconds = least_seconds(time, [&] {
    for (int i = 0; i < products; ++i)
      nn::local::gemm<T, Exec>(queue.space(), nn::local::Transpose::no, nn::local::Transpose::no, 1,
                               {a.data(), n, n, n}, {b.data(), n, n, n}, 0, {c.data(), n, n, n});
    queue.fence("aloni::tools::measure_machine: matrix products are complete");
  });
  return 2.0 * products * n * n * n / seconds;
}

/// Flops per second of a convolution with activations of T. All ranks compute, as measure_node() does.
template <class T>
double convolution_rate(const comm::Communicator& comm, const MachineDescription& machine) {
  using Space = nn::execution_space_t<T>;
  constexpr Index channels = on_host ? 64 : 256, samples = on_host ? 16 : 256;
  const nn::NetworkDescription net{
      .spatial_rank = 2,
      .input = views::make_extents(1, {32, 32}, channels),
      .layers = {{"convolution", nn::Convolution{channels, nn::square_window(2, 3, 1, 1), false}, {"input"}}},
      .loss = nn::Loss::mean_squared_error};
  MachineDescription alone = machine;
  alone.nodes.clear();
  const nn::NetworkPlan layers = nn::plan_network(net, nn::resolve(nn::Strategy::uniform({}), net, 1), 1, samples);
  const nn::StepPlan plan =
      nn::plan_step(net, layers, 0, nn::StepKind::inference, alone, {.activations = nn::element_type<T>});
  const nn::MemoryLayout layout = nn::lay_out_memory({&plan}, alone);
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n) {
    const auto* const work = std::get_if<nn::ConvolutionWork>(&plan.nodes[static_cast<std::size_t>(n)].work);
    if (!work) continue;
    const double seconds = nn::measure_node<T, Space>(comm, Queue<Space>(), plan, layout, n, alone).seconds;
    return comm.all_reduce(nn::local::flops(work->calls.front().problem) / seconds, comm::Reduction::max);
  }
  return 0;
}

/// Seconds of a kernel without work.
double empty_kernel_seconds() {
  constexpr int kernels = 100;
  const Queue<Exec> queue;
  const auto nothing = [](const Exec& exec) {
    Kokkos::parallel_for("aloni::tools::nothing", Kokkos::RangePolicy<Exec>(exec, 0, 1), KOKKOS_LAMBDA(Index){});
  };
  return median_seconds(100,
                        [&] {
                          for (int i = 0; i < kernels; ++i) nothing(queue.space());
                          queue.fence("aloni::tools::measure_machine: kernels without work are complete");
                        }) /
         kernels;
}

/// Bytes read and written per second by copies in memory of the device, from one half of `bytes` to the other.
double device_bandwidth(std::size_t bytes, double time) {
  const Queue<Exec> queue;
  const Kokkos::View<std::byte*, Exec::memory_space> from("aloni::tools: from", bytes / 2),
      to("aloni::tools: to", bytes / 2);
  // The wait for the last copy must not count.
  const std::size_t copies = std::max<std::size_t>(4, (std::size_t{1} << 30) / bytes);
  const double seconds = least_seconds(time, [&] {
    for (std::size_t i = 0; i < copies; ++i) Kokkos::deep_copy(queue.space(), to, from);
    queue.fence("aloni::tools::measure_machine: copies in memory of the device are complete");
  });
  return static_cast<double>(copies * (bytes / 2) * 2) / seconds;
}

/// Of the memory level that holds `bytes`, by the place where kernels run. `threads`: of a host.
double bandwidth(std::size_t bytes, int threads, double seconds) {
  return on_host ? copy_bandwidth(bytes, threads, seconds) : device_bandwidth(bytes, seconds);
}

/// Bytes per second between a device and page-locked memory of its host, in the slower direction. All ranks copy at the
/// same time, as in a step.
double host_bandwidth(const comm::Communicator& comm, double time) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const Queue<Exec> queue;
  const Kokkos::View<std::byte*, Exec::memory_space> device("aloni::tools: device", bytes);
  const Kokkos::View<std::byte*, Kokkos::SharedHostPinnedSpace> host("aloni::tools: host", bytes);
  const auto seconds = [&](const auto& to, const auto& from) {
    return least_seconds(time, [&] {
      Kokkos::deep_copy(queue.space(), to, from);
      queue.fence("aloni::tools::measure_machine: a copy between device and host is complete");
    });
  };
  comm.barrier();
  const double slower = std::max(seconds(host, device), seconds(device, host));
  return comm.all_reduce(static_cast<double>(bytes) / slower, comm::Reduction::min);
}

/// The cache of one core, or of a device: all its multiprocessors share one.
std::size_t own_cache_bytes() {
  return on_host ? cache_bytes(2) : static_cast<std::size_t>(comm::own_device().cache_bytes);
}
std::size_t shared_cache_bytes() { return on_host ? cache_bytes(3) : 0; }

model::Processor measure_processor(const comm::Communicator& comm, const MachineDescription& planning, double seconds) {
  const int threads = Exec().concurrency();
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int ranks = comm.node().size();
  model::Processor p{.name = processor_name(), .cores_per_node = on_host ? cores : ranks};
  const int units = on_host ? threads : 1;  // of this rank
  p.float32_flops = on_first_rank(comm, [&] { return matrix_product_rate<float>(seconds); }) / units;
  // A BLAS that does not know the processor reaches a part of its rate.
  if (on_host ? planning.onednn : planning.cudnn)
    p.float32_flops = std::max(p.float32_flops, convolution_rate<float>(comm, planning) / units);
  p.float64_flops = on_first_rank(comm, [&] { return matrix_product_rate<double>(seconds); }) / units;
  if constexpr (nn::has_activations<comm::bfloat16>)
    if (planning.onednn_bfloat16 || !on_host)
      p.bfloat16_flops = convolution_rate<comm::bfloat16>(comm, planning) / units;
  if constexpr (nn::has_activations<comm::float16>)
    if (!on_host) p.float16_flops = convolution_rate<comm::float16>(comm, planning) / units;  // hosts compute in float
  p.kernel_seconds = on_first_rank(comm, [&] { return empty_kernel_seconds(); });
  if (!on_host) p.host_bandwidth = host_bandwidth(comm, seconds);
  const std::size_t own = own_cache_bytes(), shared = shared_cache_bytes();
  p.core_cache_bytes = static_cast<double>(own);
  p.node_cache_bytes = static_cast<double>(shared);
  const auto one_core = [&](std::size_t bytes) {
    return on_first_rank(comm, [&] { return bandwidth(bytes, 1, seconds); });
  };
  if (own > 0) p.core_cache_bandwidth = one_core(own / 2);
  if (shared > 2 * own) p.node_cache_bandwidth = one_core(std::max(2 * own, shared / 8));
  // More than the caches hold. A virtual machine may report a cache of which it has a small part, and new memory takes
  // longer to get than to copy: so half a gigabyte at most.
  const auto beyond_caches = [&](int copiers) {
    constexpr std::size_t least = std::size_t{64} << 20, most = std::size_t{512} << 20;
    return std::clamp(4 * std::max(own, shared / static_cast<std::size_t>(copiers)), least, most);
  };
  p.core_bandwidth = one_core(beyond_caches(1));
  const int share = std::max(1, cores / ranks);  // threads of this rank, so that all cores work
  comm.barrier();
  const double all = comm.node().all_reduce(bandwidth(beyond_caches(ranks), share, seconds), comm::Reduction::sum);
  p.node_bandwidth = comm.all_reduce(all, comm::Reduction::min);
  return p;
}

/// Links between two ranks of a node, and the constant part of an exchange.
struct PairCosts {
  model::LinkCosts messages, copies;
  double exchange = 0;
  Index direct_bytes = 0;  ///< MachineDescription::direct_bytes; 0: the ranks share no memory
};

/// The least size from which copies from the other rank's memory take no longer than messages, also for larger sizes.
Index least_direct_bytes(const comm::Communicator& pair, int runs) {
  constexpr std::size_t largest = std::size_t{1} << 20, smallest = std::size_t{1} << 10;
  constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  std::size_t least = 4 * largest;
  for (std::size_t size = largest; size >= smallest; size /= 4) {
    const int repeats =
        std::clamp(static_cast<int>(static_cast<double>(runs) * 16e3 / static_cast<double>(size)), 5, runs);
    if (halo_exchange_seconds(pair, size, 0, repeats) > halo_exchange_seconds(pair, size, never, repeats)) break;
    least = size;
  }
  return static_cast<Index>(least);
}

/// Of short messages.
int runs_of(double seconds) { return std::clamp(static_cast<int>(2000 * seconds), 10, 1000); }

PairCosts measure_pair(const comm::Communicator& pair, bool shares_memory, double copy_bandwidth, double seconds) {
  PairCosts costs;
  const int runs = runs_of(seconds);
  const comm::LinkProbe link = comm::probe_link(pair, {.repetitions = runs});
  costs.messages = {link.latency, link.seconds_per_byte, link.seconds_per_message};
  constexpr std::size_t small = 64, large = std::size_t{1} << 20, never = std::numeric_limits<std::size_t>::max();
  const double one_message = link.latency + 2 * link.seconds_per_message;
  costs.exchange = std::max(0.0, halo_exchange_seconds(pair, small, never, runs) - one_message);
  if (!shares_memory) return costs;
  // A copy needs two empty messages, which the receiver and the sender wait for.
  const double few = halo_exchange_seconds(pair, small, 0, runs),
               many = halo_exchange_seconds(pair, large, 0, runs / 10 + 1);
  costs.copies = {link.latency, std::max(1 / copy_bandwidth, (many - few) / static_cast<double>(large - small)),
                  link.seconds_per_message};
  costs.direct_bytes = least_direct_bytes(pair, runs);
  return costs;
}

/// Seconds of exchanges in which each rank gets a row of `bytes` bytes from each other rank.
struct WaysBetweenNodes {
  double separate = 0, joined = 0;
};
WaysBetweenNodes exchange_between_nodes(const comm::Communicator& group, std::size_t bytes, int runs) {
  using View = views::DistributedView<float, 1>;
  const Queue<Exec> queue;
  const Index ranks = group.size();
  const auto distribution =
      views::Distribution::block(views::make_extents(1, {ranks}, static_cast<Index>(bytes / sizeof(float))),
                                 views::ProcessGrid::parse("w" + std::to_string(ranks)), group.size());
  views::GhostWidths ghosts;
  ghosts(views::Dim::width, views::Side::low) = ghosts(views::Dim::width, views::Side::high) = ranks - 1;
  const View view(group, queue.space(), "aloni::tools: rows of all ranks", distribution, ghosts);
  const auto exchange = [&](bool consolidated) {
    return halo::Exchange<Exec>(group, queue, {view}, {.consolidated = consolidated}, {.label = "probe"});
  };
  const halo::Exchange<Exec> separate = exchange(false), joined = exchange(true);
  std::vector<double> of_separate, of_joined;
  const auto time = [&](const halo::Exchange<Exec>& way) {
    group.barrier();
    const auto start = Clock::now();
    way.run(queue);
    return group.all_reduce(seconds_since(start), comm::Reduction::max);
  };
  for (int i = 0; i < runs; ++i) {  // in turn
    of_separate.push_back(time(separate));
    of_joined.push_back(time(joined));
  }
  return {median(of_separate), median(of_joined)};
}

double agreed(const comm::Communicator& comm, double value) { return comm.all_reduce(value, comm::Reduction::max); }
model::LinkCosts agreed(const comm::Communicator& comm, const model::LinkCosts& link) {
  return {agreed(comm, link.latency), agreed(comm, link.seconds_per_byte), agreed(comm, link.seconds_per_message)};
}

/// Between the first two nodes, if both have several ranks. At most four of each: more have few neighbours in common.
void measure_consolidation(const comm::Communicator& comm, int runs, MachineDescription& planning) {
  const auto& nodes = comm.ranks_by_node();
  const bool joins = on_host && planning.consolidate_below > 0;
  if (!joins || nodes.size() < 2 || nodes[0].size() < 2 || nodes[1].size() < 2) return;
  constexpr std::ptrdiff_t most = 4;
  std::vector<int> members;
  for (const std::vector<int>& ranks : {nodes[0], nodes[1]})
    members.insert(members.end(), ranks.begin(), ranks.begin() + std::min(most, std::ssize(ranks)));
  std::ranges::sort(members);
  const bool takes_part = std::ranges::count(members, comm.rank()) > 0;
  const Index below = takes_part ? longest_to_consolidate(comm.subgroup(members), runs) : 0;
  planning.consolidate_below = static_cast<Index>(agreed(comm, static_cast<double>(below)));
}

void measure_links(const comm::Communicator& comm, double seconds, model::Machine& machine) {
  const auto at = [&](model::LinkKind kind) -> model::LinkCosts& {
    return machine.links[static_cast<std::size_t>(kind)];
  };
  const auto& nodes = comm.ranks_by_node();
  // A copy within a rank reads and writes; rows of this size come from a shared cache.
  const double cached = std::max(machine.processor.node_cache_bandwidth, machine.processor.core_bandwidth);
  at(model::LinkKind::self) = {0, 2 / cached, machine.processor.kernel_seconds};
  PairCosts pair;
  if (nodes.front().size() > 1) {
    const std::vector<int> members{nodes.front()[0], nodes.front()[1]};
    if (std::ranges::count(members, comm.rank()) > 0)
      pair = measure_pair(comm.subgroup(members), machine.planning.shared_memory, cached, seconds);
  }
  at(model::LinkKind::within_node) = agreed(comm, pair.messages);
  at(model::LinkKind::shared_memory) = agreed(comm, pair.copies);
  const Index direct_bytes = static_cast<Index>(agreed(comm, static_cast<double>(pair.direct_bytes)));
  if (direct_bytes > 0 && machine.planning.direct_bytes != unlimited_bytes)
    machine.planning.direct_bytes = direct_bytes;
  PairCosts between;
  if (nodes.size() > 1) {
    const std::vector<int> members{nodes[0].front(), nodes[1].front()};
    if (std::ranges::count(members, comm.rank()) > 0) {
      std::vector<int> ascending = members;
      std::ranges::sort(ascending);
      between = measure_pair(comm.subgroup(ascending), false, cached, seconds);
    }
  }
  at(model::LinkKind::between_nodes) = agreed(comm, between.messages);
  measure_consolidation(comm, runs_of(seconds), machine.planning);
  machine.exchange_seconds = agreed(comm, pair.exchange > 0 ? pair.exchange : between.exchange);
}

}  // namespace

std::string processor_name() {
  if (!on_host) return comm::own_device().name;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string provenance_of(const comm::Communicator& comm) {
  return "measured on " + today() + " with " + std::to_string(comm.size()) + " ranks";
}

double halo_exchange_seconds(const comm::Communicator& pair, std::size_t bytes, std::size_t direct_bytes, int runs) {
  using View = views::DistributedView<float, 1>;
  const Queue<Exec> queue;
  const auto distribution = views::Distribution::block(
      views::make_extents(1, {2}, static_cast<Index>(bytes / sizeof(float))), views::ProcessGrid::parse("w2"), 2);
  views::GhostWidths ghosts;
  ghosts(views::Dim::width, views::Side::low) = ghosts(views::Dim::width, views::Side::high) = 1;
  const View view(pair, queue.space(), "aloni::tools: rows", distribution, ghosts);
  const halo::Exchange<Exec> exchange(pair, queue, {view}, {.label = "probe", .direct_bytes = direct_bytes});
  const double seconds = median_seconds(runs, [&] { exchange.run(queue); });
  return pair.all_reduce(seconds, comm::Reduction::max);
}

Index longest_to_consolidate(const comm::Communicator& group, int runs) {
  constexpr std::size_t smallest = 64, largest = std::size_t{256} << 10;
  constexpr double least_gain = 0.05, surely_slower = 1;
  double sum = 0, least = -least_gain;  // of the logarithms of ratios: a size with equal times decides nothing
  std::size_t below = 0;
  for (std::size_t size = smallest; size <= largest && sum < least + surely_slower; size *= 4) {
    const int repeats = std::clamp(static_cast<int>(static_cast<double>(runs) * 4e3 / static_cast<double>(size)), 7,
                                   std::min(runs, 100));
    const WaysBetweenNodes seconds = exchange_between_nodes(group, size, repeats);
    sum += std::log(seconds.joined / seconds.separate);
    if (sum >= least) continue;
    least = sum;
    below = 2 * size;
  }
  return static_cast<Index>(below);
}

std::size_t largest_measured_bytes(const model::Machine& machine, const MachineMeasurementOptions& options) {
  double slowest = 0;
  for (const model::LinkCosts& link : machine.links) slowest = std::max(slowest, link.seconds_per_byte);
  constexpr double least = 64 << 10;
  const double most = std::max(least, slowest > 0 ? options.longest_message_seconds / slowest : least);
  std::size_t bytes = options.largest_sum_bytes;
  while (static_cast<double>(bytes) > most) bytes /= 2;
  return bytes;
}

int ranks_with_equal(const comm::Communicator& comm, const std::string& text) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
  const std::uint64_t own = std::hash<std::string>{}(text);
  all[static_cast<std::size_t>(comm.rank())] = own;
  comm.run(comm::AllGather{std::span(all)});
  return static_cast<int>(std::ranges::count(all, own));
}

KernelPlace kernel_place(const comm::Communicator& comm) {
  KernelPlace place{.on_host = on_host};
  place.threads = place.on_host ? Kokkos::DefaultHostExecutionSpace().concurrency() : 1;
  place.planning = comm::describe_machine(comm, nn::local::machine_of_this_build(place.on_host));
  place.host_memory_bytes =
      comm.all_reduce(static_cast<double>(usable_memory_bytes()) / comm.node().size(), comm::Reduction::min);
  place.memory_bytes = place.host_memory_bytes;
  if (!place.on_host) {
    const comm::DeviceFacts device = comm::own_device();
    const int sharers = ranks_with_equal(comm.node(), device.address);
    place.memory_bytes = comm.all_reduce(device.memory_bytes / sharers, comm::Reduction::min);
  }
  return place;
}

model::Machine measure_machine(const comm::Communicator& comm, const MachineMeasurementOptions& options) {
  model::Machine machine;
  KernelPlace place = kernel_place(comm);
  machine.planning = std::move(place.planning);
  machine.planning.nodes.clear();
  machine.planning.tuning.reset();
  machine.ranks_per_node = static_cast<int>(comm.all_reduce(std::int64_t{comm.node().size()}, comm::Reduction::max));
  machine.threads_per_rank = place.threads;
  machine.memory_bytes = place.memory_bytes;
  machine.processor = measure_processor(comm, machine.planning, options.seconds_per_probe);
  machine.name = machine.processor.name;
  measure_links(comm, options.seconds_per_probe, machine);
  const comm::Tuning tuning = comm::calibrate(comm, {.largest_bytes = largest_measured_bytes(machine, options),
                                                     .seconds_per_case = options.seconds_per_probe / 25});
  machine.combine_seconds_per_byte = tuning.combine_seconds_per_byte;
  machine.planning.multiplications_per_slab = model::multiplications_per_slab(machine);
  if (comm.size() > 1) machine.all_reduces = {tuning};
  const std::string source = provenance_of(comm);
  for (const char* part : {"processor", "links", "all_reduces"}) machine.provenance.push_back({part, source});
  return machine;
}

}  // namespace aloni::tools
