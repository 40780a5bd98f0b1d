#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <bit>
#include <string>

namespace aloni::comm {

namespace {

/// Reduces p ranks to a power of two, for algorithms that need one. Of the first 2 (p - power) positions, each even one
/// sends its data to the next position before, and receives the result after. The remaining positions are numbered
/// 0 … power - 1 in the same order.
class Fold {
 public:
  Fold(Builder& b, const Team& team, Region data)
      : b_(b),
        team_(team),
        data_(data),
        power_(static_cast<int>(std::bit_floor(static_cast<unsigned>(team.size())))),
        extra_(team.size() - power_) {
    const int i = team.position();
    if (i >= 2 * extra_) {
      position_ = i - extra_;
    } else if (i % 2 == 1) {
      position_ = i / 2;
      const Region theirs = b.scratch(data.count);
      b.receive(team.at(i - 1), theirs);
      b.reduce(theirs, data, Operands::from_first);
    } else {
      b.send(team.at(i + 1), data);
    }
  }

  bool works() const { return position_ >= 0; }
  int power() const { return power_; }
  int position() const { return position_; }
  int at(int position) const { return team_.at(position < extra_ ? 2 * position + 1 : position + extra_); }

  void unfold() {
    const int i = team_.position();
    if (i >= 2 * extra_) return;
    if (works()) {
      b_.send(team_.at(i - 1), data_);
    } else {
      b_.receive(team_.at(i + 1), data_);
    }
  }

 private:
  Builder& b_;
  const Team& team_;
  Region data_;
  int power_, extra_, position_ = -1;
};

/// Calls f(part) for parts of at most `segment` elements, at least once.
template <class F>
void for_each_segment(Region r, Index segment, F&& f) {
  if (segment <= 0 || r.count <= segment) return f(r);
  for (Index first = 0; first < r.count; first += segment) f(r.part(first, std::min(segment, r.count - first)));
}

}  // namespace

void recursive_doubling_all_reduce(Builder& b, const Team& team, Region data) {
  if (team.size() == 1) return;
  Fold fold(b, team, data);
  if (fold.works()) {
    for (int mask = 1; mask < fold.power(); mask *= 2) {
      const int other = fold.position() ^ mask;
      const Region theirs = b.scratch(data.count);
      b.receive(fold.at(other), theirs);
      b.send(fold.at(other), data);
      b.reduce(theirs, data, other < fold.position() ? Operands::from_first : Operands::to_first);
    }
  }
  fold.unfold();
}

void rabenseifner_all_reduce(Builder& b, const Team& team, Region data) {
  if (team.size() == 1) return;
  Fold fold(b, team, data);
  if (fold.works()) {
    const int p = fold.power(), me = fold.position();
    const auto blocks = [&](int first, int count) { return blocks_of(data, first, first + count, p); };
    // Halving starts with neighbours, so that each sum is over a contiguous range of positions. A position whose bit is
    // 0 keeps the lower half of its blocks. At the end position me has block `mine`: its bits in reverse order.
    int mine = 0;
    for (int mask = 1, have = p; mask < p; mask *= 2) {
      const int other = me ^ mask;
      have /= 2;
      const int keep = mine + (me & mask ? have : 0), give = mine + (me & mask ? 0 : have);
      const Region theirs = b.scratch(blocks(keep, have).count);
      b.receive(fold.at(other), theirs);
      b.send(fold.at(other), blocks(give, have));
      b.reduce(theirs, blocks(keep, have), other < me ? Operands::from_first : Operands::to_first);
      mine = keep;
    }
    for (int mask = p / 2, have = 1; mask > 0; mask /= 2, have *= 2) {
      const int other = me ^ mask;
      const int theirs = mine ^ have;  // the other half of the pair's blocks
      b.receive(fold.at(other), blocks(theirs, have));
      b.send(fold.at(other), blocks(mine, have));
      mine = std::min(mine, theirs);
    }
  }
  fold.unfold();
}

void ring_reduce_scatter(Builder& b, const Team& team, Region data, Index segment) {
  const int p = team.size(), me = team.position();
  if (p == 1) return;
  const auto block = [&](int i) { return block_of(data, (i % p + p) % p, p); };
  const Index largest = block(0).count, piece = segment > 0 ? std::min(segment, largest) : largest;
  // Two buffers: one receives while the other is added.
  const Region buffers[2] = {b.scratch(piece), b.scratch(piece)};
  int next = 0;
  for (int step = 0; step < p - 1; ++step) {
    for_each_segment(block(me - step - 1), segment, [&](Region part) { b.send(team.at(me + 1), part); });
    for_each_segment(block(me - step - 2), segment, [&](Region part) {
      const Region theirs = buffers[next++ % 2].part(0, part.count);
      b.receive(team.at(me - 1), theirs);
      b.reduce(theirs, part, Operands::from_first);
    });
  }
}

void ring_all_gather(Builder& b, const Team& team, Region data, Index segment) {
  const int p = team.size(), me = team.position();
  const auto block = [&](int i) { return block_of(data, (i % p + p) % p, p); };
  for (int step = 0; step < p - 1; ++step) {
    for_each_segment(block(me - step), segment, [&](Region part) { b.send(team.at(me + 1), part); });
    for_each_segment(block(me - step - 1), segment, [&](Region part) { b.receive(team.at(me - 1), part); });
  }
}

void ring_all_reduce(Builder& b, const Team& team, Region data, Index segment) {
  ring_reduce_scatter(b, team, data, segment);
  ring_all_gather(b, team, data, segment);
}

void hierarchical_all_reduce(Builder& b, int rank, const std::vector<std::vector<int>>& nodes, Region data) {
  const std::size_t size = nodes.front().size();
  std::size_t mine = nodes.size();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].size() != size) {
      throw Unsupported("aloni::comm::hierarchical_all_reduce", "ranks of node " + std::to_string(n),
                        std::to_string(nodes[n].size()),
                        std::to_string(size) + ", as on node 0; use another algorithm for uneven nodes");
    }
    if (std::ranges::find(nodes[n], rank) != nodes[n].end()) mine = n;
  }
  if (mine == nodes.size()) {
    throw InvalidArgument("aloni::comm::hierarchical_all_reduce", "nodes", "without rank " + std::to_string(rank),
                          "every rank on one node");
  }
  const Team node(rank, nodes[mine]);
  std::vector<int> counterparts;
  for (const auto& ranks : nodes) counterparts.push_back(ranks[static_cast<std::size_t>(node.position())]);
  ring_reduce_scatter(b, node, data);
  rabenseifner_all_reduce(b, Team(rank, std::move(counterparts)), block_of(data, node.position(), node.size()));
  ring_all_gather(b, node, data);
}

void direct_all_reduce(Builder& b, const Team& team, Region data, bool staged) {
  const int p = team.size(), me = team.position();
  if (p == 1) return;
  const Region exposed = staged ? b.scratch(data.count) : data;
  const auto for_others_blocks = [&](auto&& f) {
    for (int i = 1; i < p; ++i) f(block_of(data, (me + i) % p, p), block_of(exposed, (me + i) % p, p));
  };
  const auto tell_all = [&] {
    const Region nothing{Buffer::scratch, 0, 0};
    for (int i = 1; i < p; ++i) {
      b.send(team.at(me + i), nothing);
      b.receive(team.at(me - i), nothing);
    }
    b.fence();
  };
  b.expose(exposed, team.ranks());
  if (staged) for_others_blocks([&](Region own, Region shared) { b.copy(own, shared); });
  b.fence();
  tell_all();
  const Region mine = block_of(data, me, p);
  b.combine(mine, mine.offset - data.offset);
  b.fence();
  tell_all();
  if (staged) for_others_blocks([&](Region own, Region shared) { b.copy(shared, own); });
}

}  // namespace aloni::comm
