// Times collectives of the library, MPI's collectives and memcpy. All cases of one size run directly one after the
// other, so that they can be compared.
//
//   allreduce/IMPLEMENTATION/BYTES   sum of floats, in place
//     shared              algorithm chosen by the library, data in the library's memory (comm.shared_memory())
//     private             algorithm chosen by the library, data in the user's memory
//     recursive_doubling, rabenseifner, ring, hierarchical    this algorithm, data in the user's memory
//     over-mpi            algorithm chosen by the library, without shared memory: messages use MPI
//     over-ucx            as over-mpi, but messages use UCX; only in builds with UCX
//     mpi                 MPI_Allreduce with MPI_IN_PLACE
//   urgent/alone|behind/BYTES        an all-reduce of higher priority, alone or during an all-reduce of 64 MiB; the
//                                    time is the slowest rank's
//   skewed/all|majority/BYTES        before each repetition one random rank sleeps 5 ms; needs at least three ranks,
//                                    all on one node
//   message/TRANSPORT/BYTES          one way between ranks 0 and 1: half a round trip; data in the user's memory
//   many/KIND/BYTES                  64 all-reduces of this size, data in the library's memory
//     single              waits for each before it starts the next
//     fused               starts all, then waits for all; the data are adjacent pieces of one array
//     scattered           as fused, but with gaps between the pieces
//   contract/all_reduce/BYTES        two ranks simulated in the process of rank 0; queues replace the network
//   contract/comparisons/1000        only the comparisons of operation, type, count and plan in 1000 of these
//                                    all-reduces
//   memcpy/BYTES                     every rank copies this many bytes, all ranks at once
//
// skewed with more ranks than cores needs --time_oversubscribed. Its times are valid because a sleeping rank uses no
// core. comparisons / all_reduce is an upper bound of the share of comparisons: over a network an all-reduce takes
// longer, its comparisons do not.
//
// bytes: size of the data. messages: messages that all ranks send in one repetition, without MPI's own messages.
// link_bytes: bytes sent to other nodes, without headers. An all-reduce over q nodes needs at least
// 2 (q - 1) × bytes; bench/two_hosts.sh runs the cases between two hosts.
#include "../unit_tests/support/simulated_network.hpp"
#include "support/benchmark.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/config.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::bench {

namespace {

using comm::AllReduceAlgorithm;
using comm::Communicator;
using comm::Reduction;

/// Floats in memory of the given resource, or of new and delete if it is null. Keeps the resource alive.
struct Data {
  std::shared_ptr<std::pmr::memory_resource> memory;
  std::pmr::vector<float> values;

  Data(std::size_t bytes, std::shared_ptr<std::pmr::memory_resource> m)
      : memory(std::move(m)), values(bytes / sizeof(float), memory ? memory.get() : std::pmr::new_delete_resource()) {}
};

struct Sent {
  std::int64_t messages = 0, link_bytes = 0;
};

/// Messages and bytes that this rank has sent so far. `node_of` holds the node of each rank.
Sent sent(const Communicator& comm, const std::vector<std::int64_t>& node_of) {
  Sent sum;
  for (const auto& peer : comm.traffic_by_peer()) {
    sum.messages += static_cast<std::int64_t>(peer.messages.messages_sent + peer.collectives.messages_sent);
    if (node_of[static_cast<std::size_t>(peer.rank)] != node_of[static_cast<std::size_t>(comm.rank())])
      sum.link_bytes += static_cast<std::int64_t>(peer.messages.bytes_sent + peer.collectives.bytes_sent);
  }
  return sum;
}

/// For each rank of `comm`, the lowest rank of its node. Collective.
std::vector<std::int64_t> nodes_of(const Communicator& comm) {
  return comm.all_gather(comm.node().all_reduce(std::int64_t{comm.rank()}, Reduction::min));
}

template <class F>
Case all_reduce_case(const Communicator& comm, std::size_t bytes, std::shared_ptr<std::pmr::memory_resource> memory,
                     F all_reduce) {
  const auto data = std::make_shared<Data>(bytes, std::move(memory));
  auto& values = data->values;
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i + static_cast<std::size_t>(comm.rank())) % 251);
  all_reduce(std::span(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::size_t sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += (i + r) % 251;
    if (values[i] != static_cast<float>(sum))
      throw std::runtime_error("bench_collectives: all-reduce gives a wrong sum");
  }
  std::ranges::fill(values, 0.0f);  // repeated sums in place would overflow
  const auto node_of = nodes_of(comm);
  const Sent before = sent(comm, node_of);
  all_reduce(std::span(values));
  const Sent after = sent(comm, node_of);
  const std::int64_t messages = comm.all_reduce(after.messages - before.messages, Reduction::sum);
  const std::int64_t link_bytes = comm.all_reduce(after.link_bytes - before.link_bytes, Reduction::sum);
  return {.run = [data, all_reduce] { all_reduce(std::span(data->values)); },
          .bytes = static_cast<double>(bytes),
          .counters = {{"messages", static_cast<double>(messages)}, {"link_bytes", static_cast<double>(link_bytes)}}};
}

/// Communicators without shared memory, each with the name of its message transport.
using OtherTransports = std::vector<std::pair<std::string, Communicator>>;

void add_all_reduce(const Communicator& world, const OtherTransports& others, std::size_t bytes) {
  const std::string size = std::to_string(bytes);
  const auto ours = [](const Communicator& comm, AllReduceAlgorithm algorithm) {
    return [comm, algorithm](std::span<float> values) {
      comm.all_reduce(values, Reduction::sum, {.algorithm = algorithm});
    };
  };
  add_timed(world, "allreduce/shared/" + size, [&world, bytes, ours] {
    return all_reduce_case(world, bytes, world.shared_memory(), ours(world, AllReduceAlgorithm::automatic));
  });
  add_timed(world, "allreduce/mpi/" + size, [&world, bytes] {
    return all_reduce_case(world, bytes, nullptr, [](std::span<float> values) {
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
  });
  add_timed(world, "allreduce/private/" + size, [&world, bytes, ours] {
    return all_reduce_case(world, bytes, nullptr, ours(world, AllReduceAlgorithm::automatic));
  });
  for (const auto algorithm : {AllReduceAlgorithm::recursive_doubling, AllReduceAlgorithm::rabenseifner,
                               AllReduceAlgorithm::ring, AllReduceAlgorithm::hierarchical}) {
    add_timed(world, "allreduce/" + to_string(algorithm) + "/" + size, [&world, bytes, ours, algorithm] {
      return all_reduce_case(world, bytes, nullptr, ours(world, algorithm));
    });
  }
  for (const auto& [name, comm] : others) {
    add_timed(world, "allreduce/over-" + name + "/" + size, [comm, bytes, ours] {
      return all_reduce_case(comm, bytes, nullptr, ours(comm, AllReduceAlgorithm::automatic));
    });
  }
}

/// 64 all-reduces of `bytes` each, of adjacent pieces of one array like gradients, or of pieces with gaps.
void add_many(const Communicator& world, std::size_t bytes) {
  constexpr std::size_t count = 64;
  struct Tensors {
    Data data;
    std::vector<std::span<float>> each;
    std::vector<comm::Request> requests;
  };
  for (const std::string kind : {"single", "fused", "scattered"}) {
    add_timed(world, "many/" + kind + "/" + std::to_string(bytes), [&world, bytes, kind] {
      const std::size_t gap = kind == "scattered" ? 16 : 0, elements = bytes / sizeof(float);
      const auto t = std::make_shared<Tensors>(
          Tensors{Data(count * (bytes + gap * sizeof(float)), world.shared_memory()), {}, {}});
      for (std::size_t i = 0; i < count; ++i)
        t->each.push_back(std::span(t->data.values).subspan(i * (elements + gap), elements));
      return Case{.run =
                      [&world, t, fuse = kind != "single"] {
                        t->requests.clear();
                        for (const std::span<float> values : t->each) {
                          t->requests.push_back(world.start_all_reduce(values, Reduction::sum, {.fuse = fuse}));
                          if (!fuse) world.wait(t->requests.back());
                        }
                        world.wait(t->requests);
                      },
                  .bytes = static_cast<double>(count * bytes)};
    });
  }
}

/// An urgent all-reduce of `bytes`, alone and started during an all-reduce of 64 MiB.
void add_urgent(const Communicator& world, std::size_t bytes) {
  struct State {
    const Communicator& world;
    std::vector<float> small, large;
    comm::Request large_request;

    explicit State(const Communicator& w) : world(w) {}
    ~State() { world.wait(large_request); }  // the request uses `large`
  };
  for (const bool behind : {false, true}) {
    add_timed(world, std::string("urgent/") + (behind ? "behind" : "alone") + "/" + std::to_string(bytes),
              [&world, bytes, behind] {
                const auto s = std::make_shared<State>(world);
                s->small.resize(bytes / sizeof(float));
                if (behind) s->large.resize((std::size_t{64} << 20) / sizeof(float));
                return Case{
                    .run = [&world, s] { world.all_reduce(std::span(s->small), Reduction::sum, {.priority = 1}); },
                    .bytes = static_cast<double>(bytes),
                    .before =
                        [&world, s, behind] {
                          world.wait(s->large_request);
                          if (behind) s->large_request = world.start_all_reduce(std::span(s->large), Reduction::sum);
                        }};
              });
  }
}

/// All-reduces in which one random rank is late. They wait for all ranks, or for the majority.
void add_skewed(const Communicator& world, const Communicator& with_thread, std::size_t bytes) {
  struct State {
    comm::PartialAllReduce<float> reduction;
    std::vector<float> values;
    std::minstd_rand lot{1};  // equal seeds: all ranks draw the same late rank
  };
  for (const bool majority : {false, true}) {
    add_timed(world, std::string("skewed/") + (majority ? "majority" : "all") + "/" + std::to_string(bytes),
              [&world, with_thread, bytes, majority] {
                const std::size_t count = bytes / sizeof(float);
                const comm::PartialOptions options{.quorum = majority ? 0 : world.size(), .max_lag = 8};
                const std::shared_ptr<State> s(
                    new State{comm::PartialAllReduce<float>(with_thread, count, options), std::vector<float>(count)});
                return Case{.run =
                                [&world, s] {
                                  const auto late = static_cast<int>(s->lot() % static_cast<unsigned>(world.size()));
                                  if (late == world.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                  s->reduction.reduce(s->values);
                                },
                            .bytes = static_cast<double>(bytes)};
              });
  }
}

/// An all-reduce between two engines of one process.
class TwoEngines {
 public:
  explicit TwoEngines(std::size_t bytes)
      : key_{.kind = comm::OperationKind::all_reduce,
             .algorithm = AllReduceAlgorithm::recursive_doubling,
             .element_bytes = sizeof(float),
             .count = static_cast<Index>(bytes / sizeof(float))} {
    for (std::size_t r = 0; r < 2; ++r) {
      values_[r].assign(bytes / sizeof(float), static_cast<float>(r + 1));
      // Without FaultyTransport, because the library does not use it outside tests.
      SimulatedRank& rank = ranks_[r];
      rank.network = std::make_unique<test::SimulatedTransport>(static_cast<int>(r), test::NetworkOptions{});
      rank.engine = std::make_unique<comm::detail::Engine>(
          static_cast<int>(r), std::vector<comm::Transport*>(2, rank.network.get()), *std::pmr::new_delete_resource());
      rank.context = &rank.engine->add_context(0, {0, 1});
      rank.plans = std::make_unique<comm::detail::Plans>(comm::detail::Topology{
          .rank = static_cast<int>(r), .root_ranks = {0, 1}, .nodes = {{0, 1}}, .one_island = true});
    }
    for (SimulatedRank& rank : ranks_) rank.network->connect({ranks_[0].network.get(), ranks_[1].network.get()});
    run();
    for (const auto& values : values_)
      if (std::ranges::count(values, 3.0F) != static_cast<std::ptrdiff_t>(values.size()))
        throw std::runtime_error("bench_collectives: all-reduce of two engines gives a wrong sum");
    for (auto& values : values_) std::ranges::fill(values, 0.0F);
  }

  void run() {
    comm::detail::Engine::Handle handles[2];
    for (std::size_t r = 0; r < 2; ++r) handles[r] = start(r);
    for (bool done[2] = {}; !done[0] || !done[1];)
      for (std::size_t r = 0; r < 2; ++r) {
        ranks_[r].engine->progress();
        done[r] = done[r] || ranks_[r].engine->test(handles[r]);
      }
  }

 private:
  struct SimulatedRank {
    std::unique_ptr<test::SimulatedTransport> network;
    std::unique_ptr<comm::detail::Engine> engine;
    comm::detail::Engine::Context* context = nullptr;
    std::unique_ptr<comm::detail::Plans> plans;
  };

  comm::detail::Engine::Handle start(std::size_t r) {
    const auto plan = ranks_[r].plans->get(key_);
    return ranks_[r].engine->start(*ranks_[r].context,
                                   {.name = "bench_collectives",
                                    .contract = {.kind = key_.kind, .plan = plan->hash, .count = values_[r].size()},
                                    .whole = &plan->whole,
                                    .last = &plan->last,
                                    .parts = plan->parts,
                                    .part_elements = plan->part_elements,
                                    .input = values_[r].data(),
                                    .output = values_[r].data(),
                                    .operation = comm::element_operation<float>(Reduction::sum),
                                    .owner = plan});
  }

  comm::detail::PlanKey key_;
  std::vector<float> values_[2];
  SimulatedRank ranks_[2];
};

/// The comparisons of contracts in an all-reduce of two ranks, without the all-reduce. Each of its two messages is
/// compared with the operation that waits for it. A message that arrives early is also compared with the latest
/// operations and with the operation that starts later; all three comparisons run here.
class Comparisons {
 public:
  static constexpr int all_reduces = 1000;  // the comparisons of one all-reduce take less time than a call of run()

  Comparisons() {
    for (std::size_t i = 0; i < all_; ++i)
      arrived_[i] = called_[i] = recent_[i] = {.kind = comm::OperationKind::all_reduce, .count = i};
  }
  void run() {
    for (int message = 0; message < 2 * all_reduces; ++message) {
      const std::size_t i = operation_++ % all_;
      recent_[i] = called_[i];
      compare(arrived_[i], called_[i]);
      compare(arrived_[(i + 1) % all_], recent_[(i + 1) % all_]);
      compare(arrived_[(i + 2) % all_], called_[(i + 2) % all_]);
    }
  }

 private:
  static void compare(comm::Contract& theirs, comm::Contract& ours) {
    asm volatile("" : "+m"(theirs), "+m"(ours));  // hides the values from the compiler
    if (!(theirs == ours)) throw std::runtime_error("bench_collectives: equal contracts compare as different");
  }

  static constexpr std::size_t all_ = 64;  // number of recent contracts that the engine keeps
  std::array<comm::Contract, all_> arrived_, called_, recent_;
  std::size_t operation_ = 0;
};

template <class Work, class... Arguments>
void add_on_first(const Communicator& world, const std::string& name, Arguments... arguments) {
  add_timed(world, name, [&world, arguments...] {
    Case result{.run = [] {}, .on_first_rank = true};
    if (world.rank() != 0) return result;
    const auto work = std::make_shared<Work>(arguments...);
    result.run = [work] { work->run(); };
    return result;
  });
}

void add_message(const Communicator& world, const Communicator& comm, const std::string& transport, std::size_t bytes) {
  add_timed(world, "message/" + transport + "/" + std::to_string(bytes), [comm, bytes] {
    const auto data = std::make_shared<std::vector<std::byte>>(bytes);
    // A repetition sends one message. The ranks take turns as the sender.
    const auto turn = std::make_shared<bool>(false);
    return Case{.run =
                    [comm, data, turn] {
                      if (comm.rank() < 2) {
                        comm::Request request = (comm.rank() == 0) != *turn ? comm.send(*data, 1 - comm.rank(), 0)
                                                                            : comm.receive(*data, 1 - comm.rank(), 0);
                        comm.wait(std::span(&request, 1));
                      }
                      *turn = !*turn;
                    },
                .bytes = static_cast<double>(bytes),
                .counters = {{"messages", 1}}};
  });
}

void add_memcpy(const Communicator& world, std::size_t bytes) {
  add_timed(world, "memcpy/" + std::to_string(bytes), [&world, bytes] {
    Case c = memcpy_case(world, static_cast<double>(bytes));
    c.bytes = static_cast<double>(bytes);  // as in the collectives: bytes per rank
    return c;
  });
}

}  // namespace

void register_benchmarks(const Communicator& world) {
  OtherTransports others{{"mpi", comm::from_mpi(MPI_COMM_WORLD, {.shared_memory = false})}};
  if (config::has_ucx) {
    others.emplace_back(
        "ucx", comm::from_mpi(MPI_COMM_WORLD, {.shared_memory = false, .messages = comm::MessageTransport::ucx}));
  }
  add_on_first<Comparisons>(world, "contract/comparisons/" + std::to_string(Comparisons::all_reduces));
  for (const std::size_t bytes : {8, 4096})
    add_on_first<TwoEngines>(world, "contract/all_reduce/" + std::to_string(bytes), bytes);
  add_many(world, 4096);
  add_urgent(world, 4096);
  if (world.size() >= 3 && world.node().all_reduce(std::int64_t{1}, Reduction::sum) == world.size())
    add_skewed(world, comm::from_mpi(MPI_COMM_WORLD, {.progress_thread = true}), 1 << 20);
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{64}, std::size_t{1} << 10, std::size_t{4} << 10, std::size_t{16} << 10,
        std::size_t{64} << 10, std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{8} << 20,
        std::size_t{16} << 20, std::size_t{32} << 20, std::size_t{64} << 20}) {
    add_all_reduce(world, others, bytes);
    if (world.size() > 1) {
      add_message(world, world, "shared", bytes);
      for (const auto& [name, comm] : others) add_message(world, comm, name, bytes);
    }
    add_memcpy(world, bytes);
  }
}

}  // namespace aloni::bench
