// Times halo exchanges of stencil codes, and memcpy of as many bytes as the ghosts have, on the same ranks.
//
//   halo/CASE/TRANSPORT    start and finish of one exchange; bytes: ghosts of all ranks; messages: sent by all ranks
//   memcpy/CASE            every rank copies as many bytes as its ghosts have, all ranks at once
//   copy/CASE              the same within the memory of the execution space: on a device its copy bandwidth
//
// Every rank has a block of the same size. A face case splits one dimension and has no ghosts beyond the ends of the
// domain; the large ones have faces of 16 MiB. The other cases have a periodic domain and need all 26 neighbours of a
// block, among them the rank itself.
//
// TRANSPORT:
//   shared         Views in memory that the ranks of a node share
//   wrapped        Views in the user's memory
//   by-dimension   as shared, one dimension after the other
//   mpi, ucx       without shared memory
//   consolidated   as shared, all messages from one node to another joined; only on several nodes
//   separate       as shared, without consolidation; only on several nodes
//
// On several nodes node_messages and node_bytes count the messages and bytes between nodes, in both directions.
#include "support/benchmark.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/config.hpp>
#include <aloni/halo/exchange.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace aloni::bench {

namespace {

using halo::Boundary;
using halo::BoundaryConditions;
using views::Box;
using views::Dim;
using views::Distribution;
using views::GhostWidths;
using views::ProcessGrid;
using views::Side;
using Exec = Kokkos::DefaultExecutionSpace;
using View = views::DistributedView<double, 3>;

constexpr std::array space{Dim::depth, Dim::height, Dim::width};

struct Problem {
  std::string name;
  Index side = 128;    ///< cells of a block in each spatial dimension
  Index depth = 0;     ///< cells of a block in the split dimension; 0: side
  Index channels = 8;  ///< values per cell
  int fields = 1;      ///< number of Views, each with `channels` channels
  Index radius = 1;
  std::vector<Dim> split;  ///< one: faces only; empty: periodic, split as evenly as possible, all neighbours
  bool fused = true;
};

std::vector<Problem> problems() {
  return {
      {.name = "face-depth", .split = {Dim::depth}},
      {.name = "face-height", .split = {Dim::height}},
      {.name = "face-width", .split = {Dim::width}},
      {.name = "face-depth-64k", .side = 32, .split = {Dim::depth}},
      {.name = "face-depth-radius3", .radius = 3, .split = {Dim::depth}},
      {.name = "face-depth-large", .side = 512, .depth = 16, .split = {Dim::depth}},
      {.name = "face-height-large", .side = 512, .depth = 16, .split = {Dim::height}},
      {.name = "face-width-large", .side = 512, .depth = 16, .split = {Dim::width}},
      {.name = "all", .split = {}},
      {.name = "all-scalar", .channels = 1, .split = {}},
      {.name = "all-radius3", .radius = 3, .split = {}},
      {.name = "fused", .channels = 1, .fields = 8, .split = {}},
      {.name = "per-field", .channels = 1, .fields = 8, .split = {}, .fused = false},
  };
}

double value(Index n, Index d, Index h, Index w, Index c) {
  return static_cast<double>((7 * n + 5 * d + 3 * h + 11 * w + c) % 64);
}

/// Views and their exchanges. The constructor checks one exchange and throws std::runtime_error if a ghost is wrong.
class State {
 public:
  State(comm::Communicator comm, const Problem& problem, bool wraps, const halo::ExchangeMethod& method = {})
      : comm_(std::move(comm)), problem_(problem), distribution_(distribution(problem, comm_.size())) {
    GhostWidths ghosts;
    for (const Dim d : problem.split.empty() ? std::vector<Dim>(space.begin(), space.end()) : problem.split)
      ghosts(d, Side::low) = ghosts(d, Side::high) = problem.radius;
    const bool periodic = problem.split.empty();
    if (!periodic) {  // no ghosts beyond the ends of the domain
      const Box own = distribution_.owned(comm_.rank());
      const Dim d = problem.split.front();
      if (own.lower(d) == 0) ghosts(d, Side::low) = 0;
      if (own.upper(d) == distribution_.extents()[d]) ghosts(d, Side::high) = 0;
    }
    const auto boundaries = BoundaryConditions::all(periodic ? Boundary::periodic : Boundary::none);
    std::vector<halo::Field<View::memory_space>> all;
    for (int i = 0; i < problem.fields; ++i) {
      if (wraps) {
        const Box box = views::grow(distribution_.owned(comm_.rank()), ghosts);
        const auto n = [&](Dim d) { return static_cast<std::size_t>(box.extent(d)); };
        const View::owning_type mine("aloni::bench: field", n(Dim::sample), n(Dim::depth), n(Dim::height),
                                     n(Dim::width), n(Dim::channel));
        views_.push_back(View::wrap(mine, distribution_, comm_.rank(), ghosts));
      } else {
        views_.emplace_back(comm_, queue_.space(), "aloni::bench: field", distribution_, ghosts);
      }
      all.emplace_back(views_.back(), boundaries);
      if (!problem.fused) exchanges_.emplace_back(comm_, queue_, std::vector{all.back()}, method);
    }
    if (problem.fused) exchanges_.emplace_back(comm_, queue_, all, method);
    check();
  }

  void run() {
    pending_.clear();
    for (const auto& e : exchanges_) pending_.push_back(e.start(queue_));
    for (auto& p : pending_) p.finish();
    queue_.fence("aloni::bench: end of repetition");
  }

  // The counts below are of this rank.
  double ghost_bytes() const {
    double cells = 0;
    for (const View& v : views_) cells += static_cast<double>(v.box_with_ghosts().size() - v.owned_box().size());
    return cells * sizeof(double);
  }
  double messages() const {
    double sum = 0;
    for (const auto& e : exchanges_) sum += static_cast<double>(e.counts().sent_messages);
    return sum;
  }
  double messages_between_nodes() const {
    double sum = 0;
    for (const auto& e : exchanges_) sum += e.messages_between_nodes();
    return sum;
  }
  double bytes_between_nodes() const {
    const auto nodes = comm_.all_gather(comm_.node().all_reduce(std::int64_t{comm_.rank()}, comm::Reduction::min));
    const auto node_of = [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
    double sum = 0;
    for (const auto& e : exchanges_)
      for (const halo::PeerTransfer& p : e.peers())
        if (!p.receives && node_of(p.rank) != node_of(comm_.rank())) sum += static_cast<double>(p.bytes);
    return sum;
  }

 private:
  static Distribution distribution(const Problem& p, int ranks) {
    ProcessGrid grid;
    if (!p.split.empty()) {
      grid[p.split.front()] = ranks;
    } else {
      for (const ProcessGrid& g : views::all_grids(ranks, {space.begin(), space.end()})) {
        const auto longest = [](const ProcessGrid& of) {
          return std::max({of[Dim::depth], of[Dim::height], of[Dim::width]});
        };
        if (grid.size() != ranks || longest(g) < longest(grid)) grid = g;
      }
    }
    std::array<Index, 3> cells{};
    for (std::size_t i = 0; i < space.size(); ++i) {
      const bool split = !p.split.empty() && p.split.front() == space[i];
      cells[i] = (split && p.depth > 0 ? p.depth : p.side) * grid[space[i]];
    }
    return Distribution::block(views::make_extents(1, cells, p.channels), grid, ranks);
  }

  template <class F>
  static void for_each_cell(const Box& box, F&& f) {
    for (Index d = box.lower(Dim::depth); d < box.upper(Dim::depth); ++d)
      for (Index h = box.lower(Dim::height); h < box.upper(Dim::height); ++h)
        for (Index w = box.lower(Dim::width); w < box.upper(Dim::width); ++w)
          for (Index c = 0; c < box.extent(Dim::channel); ++c) f(d, h, w, c);
  }

  void check() {
    const auto extent = [&](Dim d) { return distribution_.extents()[d]; };
    std::vector<views::DistributedView<double, 3, Kokkos::HostSpace>> hosts;
    for (const View& v : views_) {
      const auto host = views::create_mirror_view(v);
      const auto cells = host.local_unchecked();
      const Box box = v.box_with_ghosts();
      const auto i = static_cast<Index>(hosts.size());
      for_each_cell(v.owned_box(), [&](Index d, Index h, Index w, Index c) {
        cells(0, d - box.lower(Dim::depth), h - box.lower(Dim::height), w - box.lower(Dim::width), c) =
            value(i, d, h, w, c);
      });
      if (host.local_unchecked().data() != v.local_unchecked().data()) deep_copy(queue_.space(), v, host);
      hosts.push_back(host);
    }
    run();
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (hosts[i].local_unchecked().data() != views_[i].local_unchecked().data())
        deep_copy(queue_.space(), hosts[i], views_[i]);
      queue_.fence("aloni::bench: before checking");
      const auto cells = hosts[i].local_unchecked();
      const Box box = views_[i].box_with_ghosts();
      for_each_cell(box, [&](Index d, Index h, Index w, Index c) {
        const auto wrapped = [&](Index at, Dim dim) { return (at + extent(dim)) % extent(dim); };
        if (cells(0, d - box.lower(Dim::depth), h - box.lower(Dim::height), w - box.lower(Dim::width), c) !=
            value(static_cast<Index>(i), wrapped(d, Dim::depth), wrapped(h, Dim::height), wrapped(w, Dim::width), c))
          throw std::runtime_error("bench_halo: wrong value after the halo exchange of " + problem_.name);
      });
    }
  }

  comm::Communicator comm_;
  Problem problem_;
  Distribution distribution_;
  Queue<Exec> queue_;
  std::vector<View> views_;
  std::vector<halo::Exchange<>> exchanges_;
  std::vector<halo::Pending> pending_;
};

/// Every rank copies as many bytes of its own within the memory of the execution space, all ranks at once.
Case copy_case(const comm::Communicator& world, double bytes) {
  using Bytes = Kokkos::View<std::byte*, Exec::memory_space>;
  struct Copy {
    Queue<Exec> queue;
    Bytes from, to;
  };
  const auto count = static_cast<std::size_t>(bytes);
  const auto copy =
      std::make_shared<Copy>(Copy{{}, Bytes("aloni::bench: copied", count), Bytes("aloni::bench: copy", count)});
  return {.run =
              [copy] {
                Kokkos::deep_copy(copy->queue.space(), copy->to, copy->from);
                copy->queue.fence("aloni::bench: end of repetition");
              },
          .bytes = world.all_reduce(bytes, comm::Reduction::sum)};
}

}  // namespace

void register_benchmarks(const comm::Communicator& world) {
  struct Way {
    std::string name;
    comm::TransportOptions transport{};
    bool wraps = false;
    halo::ExchangeMethod method{};
  };
  std::vector<Way> ways{{"shared"},
                        {"wrapped", {}, true},
                        {"by-dimension", {}, false, {.by_dimension = true}},
                        {"mpi", {.shared_memory = false}}};
  if (config::has_ucx) ways.push_back({"ucx", {.shared_memory = false, .messages = comm::MessageTransport::ucx}});
  const bool has_nodes = world.node().size() < world.size();
  if (has_nodes) {
    ways.push_back({"consolidated", {}, false, {.consolidated = true}});
    ways.push_back({"separate", {}, false, {.consolidated = false}});
  }
  for (const Problem& problem : problems()) {
    for (const Way& way : ways) {
      add_timed(world, "halo/" + problem.name + "/" + way.name, [&world, problem, way, has_nodes] {
        const auto state =
            std::make_shared<State>(comm::from_mpi(MPI_COMM_WORLD, way.transport), problem, way.wraps, way.method);
        const auto sum = [&](double mine) { return world.all_reduce(mine, comm::Reduction::sum); };
        Case result{.run = [state] { state->run(); },
                    .bytes = sum(state->ghost_bytes()),
                    .counters = {{"messages", sum(state->messages())}}};
        if (has_nodes) {
          result.counters["node_messages"] = sum(state->messages_between_nodes());
          result.counters["node_bytes"] = sum(state->bytes_between_nodes());
        }
        return result;
      });
    }
    add_timed(world, "memcpy/" + problem.name,
              [&world, problem] { return memcpy_case(world, State(world, problem, false).ghost_bytes()); });
    add_timed(world, "copy/" + problem.name,
              [&world, problem] { return copy_case(world, State(world, problem, false).ghost_bytes()); });
  }
}

}  // namespace aloni::bench
