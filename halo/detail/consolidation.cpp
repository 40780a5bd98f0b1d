#include <aloni/halo/detail/consolidation.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory_resource>
#include <ranges>
#include <string>
#include <utility>

namespace aloni::halo::detail {

namespace {

using comm::Communicator;
using comm::Region;
using comm::Schedule;
using comm::Step;

std::vector<int> nodes_of_ranks(const Communicator& comm, const Communicator& node) {
  std::map<std::int64_t, int> numbers;
  std::vector<int> nodes;
  for (const std::int64_t first : comm.all_gather(node.all_reduce(std::int64_t{comm.rank()}, comm::Reduction::min)))
    nodes.push_back(numbers.try_emplace(first, static_cast<int>(numbers.size())).first->second);
  return nodes;
}

/// The parcels of all ranks of the node. Collective over the node.
std::vector<Parcel> gather(const Communicator& node, std::span<const Parcel> outgoing,
                           std::span<const Parcel> incoming) {
  using Row = std::array<std::int64_t, 3>;
  const auto mine = static_cast<std::int64_t>(outgoing.size() + incoming.size());
  const std::vector<std::int64_t> counts = node.all_gather(mine);
  const auto most = static_cast<std::size_t>(std::ranges::max(counts));
  std::vector<Row> rows(most * counts.size());
  auto at = rows.begin() + static_cast<std::ptrdiff_t>(most) * node.rank();
  for (const auto& parcels : {outgoing, incoming})
    for (const Parcel& p : parcels) *at++ = {p.from, p.to, static_cast<std::int64_t>(p.bytes)};
  if (most > 0) node.run(comm::AllGather{std::span(rows)});
  std::vector<Parcel> all;
  for (std::size_t r = 0; r < counts.size(); ++r)
    for (const auto& [from, to, bytes] : std::span(rows).subspan(r * most, static_cast<std::size_t>(counts[r])))
      all.push_back({static_cast<int>(from), static_cast<int>(to), static_cast<std::size_t>(bytes), nullptr});
  return all;
}

/// Builds this rank's schedule from steps that wait for other steps.
class Steps {
 public:
  explicit Steps(int rank) { schedule_.rank = rank; }

  /// Appends a step and returns its number.
  int add(Step::Kind kind, int peer, Region region, std::span<const int> after = {}) {
    Step step{.kind = kind, .peer = peer};
    (kind == Step::Kind::send ? step.from : step.to) = region;
    step.first_dependency = static_cast<int>(schedule_.dependencies.size());
    step.num_dependencies = static_cast<int>(after.size());
    schedule_.dependencies.insert(schedule_.dependencies.end(), after.begin(), after.end());
    schedule_.steps.push_back(step);
    return static_cast<int>(schedule_.steps.size()) - 1;
  }
  Schedule finish(std::size_t bytes) {
    schedule_.output = static_cast<Index>(bytes);
    return std::move(schedule_);
  }

 private:
  Schedule schedule_;
};

constexpr Region nothing{};

}  // namespace

Consolidation::Consolidation(const Communicator& parent, std::span<Parcel> outgoing, std::span<Parcel> incoming,
                             std::size_t below, int priority) {
  if (below == 0) return;
  const Communicator comm = parent.split(0, parent.rank());  // its messages do not mix with others
  const Communicator node = comm.node();
  if (node.size() == comm.size()) return;
  const int rank = comm.rank();
  std::vector<NodePair> pairs = pair_nodes(gather(node, outgoing, incoming), nodes_of_ranks(comm, node), below);

  std::size_t bytes = 0;
  for (NodePair& pair : pairs) {
    if (pair.relay_from != rank && pair.relay_to != rank) continue;
    pair.place = static_cast<Index>(bytes);
    bytes += pair.bytes;
  }
  comm::collectively(comm, "aloni::halo::Transfer: memory for consolidated messages", [&] {
    if (bytes == 0) return;
    const auto heap = comm.shared_memory();
    memory_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(heap->allocate(bytes, parcel_alignment)),
                                         [heap, bytes](std::byte* p) { heap->deallocate(p, bytes, parcel_alignment); });
    std::fill_n(memory_.get(), bytes, std::byte{0});
  });

  // Each relay sends the address of its memory to the other ranks of its side.
  std::vector<comm::ExposedMemory> told(2 * pairs.size()), heard(2 * pairs.size());
  std::vector<comm::Request> requests;
  const auto each_side = [&](auto&& f) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      f(pairs[i], 2 * i, pairs[i].relay_from, pairs[i].senders());
      f(pairs[i], 2 * i + 1, pairs[i].relay_to, pairs[i].receivers());
    }
  };
  bool reachable = true;
  each_side([&](const NodePair& pair, std::size_t i, int relay, const std::vector<int>& members) {
    if (std::ranges::find(members, rank) == members.end()) return;
    active_ = true;
    if (relay != rank) {
      requests.push_back(comm.receive(std::span(&heard[i], 1), relay, 0));
      return;
    }
    for (const int member : members) {
      if (member == rank) continue;
      told[i] = comm.expose(memory_.get() + pair.place, pair.bytes, member);
      requests.push_back(comm.send(std::span(&told[i], 1), member, 0));
    }
  });
  comm.wait(requests);
  std::vector<std::byte*> bases(told.size(), nullptr);
  each_side([&](const NodePair& pair, std::size_t i, int relay, const std::vector<int>& members) {
    if (std::ranges::find(members, rank) == members.end()) return;
    if (relay == rank) {
      bases[i] = memory_.get() + pair.place;
    } else {
      others_.push_back(comm.open(relay, heard[i], pair.bytes));
      bases[i] = others_.back().get();
    }
    reachable &= bases[i] != nullptr;
  });
  if (comm.all_reduce(reachable ? 1 : 0, comm::Reduction::min) == 0) {
    *this = {};
    return;
  }

  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (std::size_t k = 0; k < pairs[i].parcels.size(); ++k) {
      const Parcel& p = pairs[i].parcels[k];
      const auto locate = [&](std::span<Parcel> parcels, std::byte* base) {
        for (Parcel& mine : parcels)
          if (mine.from == p.from && mine.to == p.to) mine.data = base + pairs[i].offsets[k];
      };
      if (p.from == rank) locate(outgoing, bases[2 * i]);
      if (p.to == rank) locate(incoming, bases[2 * i + 1]);
    }
  }
  bytes_ = bytes;
  forward_ = make_direction(comm, pairs, bytes, false, priority);
  backward_ = make_direction(comm, pairs, bytes, true, priority);
}

Consolidation::Direction Consolidation::make_direction(const Communicator& comm, const std::vector<NodePair>& pairs,
                                                       std::size_t bytes, bool backwards, int priority) const {
  using enum Step::Kind;
  const int rank = comm.rank();
  Steps move(rank), release(rank);
  Direction direction;
  for (const NodePair& forward : pairs) {
    const NodePair pair = backwards ? reversed(forward) : forward;
    const std::vector<int> sources = pair.senders(), destinations = pair.receivers();
    const int here = pair.relay_from, there = pair.relay_to;
    const Region all{comm::Buffer::output, pair.place, static_cast<Index>(pair.bytes)};
    if (rank == here) {
      std::vector<int> packed;
      for (const int r : sources)
        if (r != rank) packed.push_back(move.add(receive, r, nothing));
      const int sent = move.add(send, there, all, packed);
      ++direction.messages_sent;
      for (const int r : sources)
        if (r != rank) move.add(send, r, nothing, std::span(&sent, 1));
    } else if (std::ranges::find(sources, rank) != sources.end()) {
      move.add(send, here, nothing);
      move.add(receive, here, nothing);
    }
    if (rank == there) {
      const int arrived = move.add(receive, here, all);
      for (const int r : destinations) {
        if (r == rank) continue;
        move.add(send, r, nothing, std::span(&arrived, 1));
        release.add(receive, r, nothing);
      }
    } else if (std::ranges::find(destinations, rank) != destinations.end()) {
      move.add(receive, there, nothing);
      release.add(send, there, nothing);
    }
  }
  const std::span<std::byte> memory(memory_.get(), bytes);
  const auto way = backwards ? comm::TransferDirection::adjoint : comm::TransferDirection::forward;
  direction.move = comm.persistent(
      comm::UserSchedule{"aloni::halo: consolidated messages", move.finish(bytes), memory, {}, {}, priority, way});
  direction.release = comm.persistent(
      comm::UserSchedule{"aloni::halo: messages unpacked", release.finish(bytes), memory, {}, {}, priority, way});
  return direction;
}

Consolidation consolidate(const Communicator& comm, std::span<Peer> outgoing, std::span<Peer> incoming,
                          std::size_t below, int priority) {
  const Communicator node = comm.node();
  if (node.size() == comm.size()) return {};
  std::vector<bool> is_near(static_cast<std::size_t>(comm.size()));
  for (const std::int64_t r : node.all_gather(std::int64_t{comm.rank()})) is_near[static_cast<std::size_t>(r)] = true;
  const auto parcels_of = [&](std::span<Peer> peers, bool leave) {
    std::vector<Parcel> parcels;
    for (Peer& p : peers) {
      p.other_node = !is_near[static_cast<std::size_t>(p.rank)];
      if (!p.other_node || p.grouped() || p.on_device || p.bytes == 0) continue;
      parcels.push_back({leave ? comm.rank() : p.rank, leave ? p.rank : comm.rank(), p.bytes, nullptr});
    }
    return parcels;
  };
  std::vector<Parcel> leaving = parcels_of(outgoing, true), coming = parcels_of(incoming, false);
  Consolidation consolidation(comm, leaving, coming, below, priority);
  const auto keep = [](std::span<Peer> peers, const std::vector<Parcel>& parcels, int Parcel::*peer) {
    for (const Parcel& parcel : parcels)
      for (Peer& p : peers)
        if (p.rank == parcel.*peer) p.consolidated = parcel.data;
  };
  keep(outgoing, leaving, &Parcel::to);
  keep(incoming, coming, &Parcel::from);
  return consolidation;
}

}  // namespace aloni::halo::detail
