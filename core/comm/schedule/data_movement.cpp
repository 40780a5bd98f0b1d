// Collectives that move data without combining it.
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <string>

namespace aloni::comm {

namespace {

void require_equal_blocks(const char* operation, Index count, int p) {
  if (count % p != 0) {
    throw InvalidArgument(operation, "count", std::to_string(count),
                          "a multiple of the " + std::to_string(p) + " ranks");
  }
}

}  // namespace

void bruck_all_gather(Builder& b, const Team& team, Region data) {
  const int p = team.size(), me = team.position();
  require_equal_blocks("aloni::comm::bruck_all_gather", data.count, p);
  if (p == 1) return;
  // Slot j receives the block of position me + j.
  const Region slots = b.scratch(data.count);
  b.copy(block_of(data, me, p), block_of(slots, 0, p));
  for (int have = 1; have < p; have *= 2) {
    const int count = std::min(have, p - have);
    b.send(team.at(me - have), blocks_of(slots, 0, count, p));
    b.receive(team.at(me + have), blocks_of(slots, have, have + count, p));
  }
  if (me < p - 1) b.copy(blocks_of(slots, 1, p - me, p), blocks_of(data, me + 1, p, p));
  b.copy(blocks_of(slots, p - me, p, p), blocks_of(data, 0, me, p));
}

void binomial_broadcast(Builder& b, const Team& team, Region data, int root) {
  const int p = team.size(), place = (team.position() - root + p) % p;  // distance from the root
  int mask = 1;
  for (; mask < p; mask *= 2) {
    if (place & mask) {
      b.receive(team.at(root + place - mask), data);
      break;
    }
  }
  for (mask /= 2; mask > 0; mask /= 2) {
    if (place + mask < p) b.send(team.at(root + place + mask), data);
  }
}

void chain_broadcast(Builder& b, const Team& team, Region data, int root, Index segment) {
  if (segment <= 0) {
    throw InvalidArgument("aloni::comm::chain_broadcast", "segment", std::to_string(segment), "at least one element");
  }
  const int p = team.size(), place = (team.position() - root + p) % p;
  for (Index first = 0; first < data.count; first += segment) {
    const Region part = data.part(first, std::min(segment, data.count - first));
    if (place > 0) b.receive(team.at(root + place - 1), part);
    if (place + 1 < p) b.send(team.at(root + place + 1), part);
  }
}

void hierarchical_broadcast(Builder& b, int rank, const std::vector<std::vector<int>>& nodes, Region data, int root) {
  // The root represents its node, the first rank every other node.
  std::vector<int> speakers;
  const std::vector<int>* mine = nullptr;
  int my_speaker = -1, speaker_of_root = -1;
  for (const auto& node : nodes) {
    const bool has_root = std::ranges::find(node, root) != node.end();
    const int speaker = has_root ? root : node.front();
    if (has_root) speaker_of_root = static_cast<int>(speakers.size());
    if (std::ranges::find(node, rank) != node.end()) {
      mine = &node;
      my_speaker = speaker;
    }
    speakers.push_back(speaker);
  }
  if (!mine || speaker_of_root < 0) {
    throw InvalidArgument("aloni::comm::hierarchical_broadcast", "nodes",
                          "without rank " + std::to_string(mine ? root : rank), "every rank on one node");
  }
  if (rank == my_speaker) binomial_broadcast(b, Team(rank, speakers), data, speaker_of_root);
  const Team node(rank, *mine);
  binomial_broadcast(b, node, data, Team(my_speaker, *mine).position());
}

void pairwise_all_to_all(Builder& b, const Team& team, Region input, Region output,
                         const std::vector<std::vector<Index>>& counts) {
  const int p = team.size(), me = team.position();
  const auto count = [&](int from, int to) {
    return counts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  };
  std::vector<Region> outgoing, incoming;
  Index sent = 0, received = 0;
  for (int j = 0; j < p; ++j) {
    outgoing.push_back(input.part(sent, count(me, j)));
    incoming.push_back(output.part(received, count(j, me)));
    sent += count(me, j);
    received += count(j, me);
  }
  if (sent != input.count || received != output.count) {
    throw InvalidArgument("aloni::comm::pairwise_all_to_all", "counts",
                          std::to_string(sent) + " to send, " + std::to_string(received) + " to receive",
                          "the regions' " + std::to_string(input.count) + " and " + std::to_string(output.count));
  }
  for (int step = 1; step < p; ++step) {
    const int to = (me + step) % p, from = (me - step + p) % p;
    if (incoming[static_cast<std::size_t>(from)].count > 0)
      b.receive(team.at(from), incoming[static_cast<std::size_t>(from)]);
    if (outgoing[static_cast<std::size_t>(to)].count > 0) b.send(team.at(to), outgoing[static_cast<std::size_t>(to)]);
  }
  b.copy(outgoing[static_cast<std::size_t>(me)], incoming[static_cast<std::size_t>(me)]);
}

void bruck_all_to_all(Builder& b, const Team& team, Region input, Region output) {
  const int p = team.size(), me = team.position();
  require_equal_blocks("aloni::comm::bruck_all_to_all", input.count, p);
  require_equal_blocks("aloni::comm::bruck_all_to_all", output.count, p);
  const Index size = input.count / p;
  // The block in slot j still has to travel j positions up.
  const Region slots = b.scratch(input.count);
  for (int j = 0; j < p; ++j) b.copy(block_of(input, (me + j) % p, p), block_of(slots, j, p));
  for (int mask = 1; mask < p; mask *= 2) {
    std::vector<int> travelling;
    for (int j = 0; j < p; ++j) {
      if (j & mask) travelling.push_back(j);
    }
    const auto count = static_cast<Index>(travelling.size());
    const Region outgoing = b.scratch(count * size), incoming = b.scratch(count * size);
    for (Index k = 0; k < count; ++k) {
      b.copy(block_of(slots, travelling[static_cast<std::size_t>(k)], p), outgoing.part(k * size, size));
    }
    b.send(team.at(me + mask), outgoing);
    b.receive(team.at(me - mask), incoming);
    for (Index k = 0; k < count; ++k) {
      b.copy(incoming.part(k * size, size), block_of(slots, travelling[static_cast<std::size_t>(k)], p));
    }
  }
  for (int j = 0; j < p; ++j) b.copy(block_of(slots, j, p), block_of(output, (me - j + p) % p, p));
}

void dissemination_barrier(Builder& b, const Team& team) {
  const Region nothing{Buffer::scratch, 0, 0};
  for (int distance = 1; distance < team.size(); distance *= 2) {
    b.send(team.at(team.position() + distance), nothing);
    b.receive(team.at(team.position() - distance), nothing);
    b.fence();
  }
}

}  // namespace aloni::comm
