#include <aloni/halo/transfer_plan.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace aloni::halo {

namespace {

using views::all_dims;
using views::Box;
using views::Dim;
using views::Distribution;
using views::num_dims;
using views::position;
using views::Side;

// A box is the product of five ranges. Each range is split on its own into segments with one owning block and one
// boundary kind. The moves are the products of the segments.
struct Segment {
  Range destination, source;
  std::int8_t step = 1;
  int block = any_block;

  static constexpr int any_block = -1;  // replicated: all blocks own it
};

using Segments = std::array<std::vector<Segment>, num_dims>;

// Appends the destination [at, at + length), which takes the source range [lo, lo + length) forwards or backwards. It
// is split where the owner changes.
void append_run(const Distribution& dist, Dim d, Index at, Index lo, Index length, int direction,
                std::vector<Segment>& out) {
  const Index hi = lo + length;
  while (length > 0) {
    Segment s;
    Index part = length;
    if (!dist.replicated(d)) {
      s.block = dist.block_of(d, direction > 0 ? hi - length : lo + length - 1);
      const auto block = static_cast<std::size_t>(s.block);
      const Index begin = dist.borders(d)[block], end = dist.borders(d)[block + 1];
      part = direction > 0 ? std::min(length, end - (hi - length)) : std::min(length, lo + length - begin);
    }
    const Index from = direction > 0 ? hi - length : lo + length - part;
    s.destination = {at, at + part};
    s.source = {from, from + part};
    s.step = static_cast<std::int8_t>(part == 1 ? 1 : direction);
    out.push_back(s);
    at += part;
    length -= part;
  }
}

// Appends the destination [lo, hi), which lies on one side of the domain [0, n).
void append_outside(const Distribution& dist, Dim d, Index lo, Index hi, Side side, Boundary kind,
                    std::vector<Segment>& out) {
  const Index n = dist.extents()[d];
  if (kind == Boundary::replicate || (kind == Boundary::reflect && n == 1)) {
    const Index edge = side == Side::low ? 0 : n - 1;
    Segment s;
    s.destination = {lo, hi};
    s.source = {edge, edge + 1};
    s.step = static_cast<std::int8_t>(hi - lo == 1 ? 1 : 0);
    if (!dist.replicated(d)) s.block = dist.block_of(d, edge);
    out.push_back(s);
    return;
  }
  // Both remaining kinds repeat: periodic after n cells, reflect after n − 1 cells forwards and n − 1 backwards.
  const Index period = kind == Boundary::periodic ? n : 2 * (n - 1);
  while (lo < hi) {
    const Index phase = lo - period * floor_div(lo, period);
    const bool forwards = kind == Boundary::periodic || phase < n - 1;
    const Index run_end = forwards && kind == Boundary::reflect ? n - 1 : period;
    const Index length = std::min(hi - lo, run_end - phase);
    append_run(dist, d, lo, forwards ? phase : period - phase - length + 1, length, forwards ? 1 : -1, out);
    lo += length;
  }
}

void split(const Distribution& dist, Dim d, Index lo, Index hi, const BoundaryConditions& boundaries,
           std::vector<Segment>& out) {
  out.clear();
  const Index n = dist.extents()[d];
  if (lo < 0) append_outside(dist, d, lo, std::min<Index>(hi, 0), Side::low, boundaries(d, Side::low), out);
  const Index begin = std::max<Index>(lo, 0), end = std::min(hi, n);
  if (begin < end) append_run(dist, d, begin, begin, end - begin, 1, out);
  if (hi > n) append_outside(dist, d, std::max(lo, n), hi, Side::high, boundaries(d, Side::high), out);
}

// The needed box without cells beyond ends of kind `none`, which the caller fills, and without cells that become zero.
// The latter are appended to `fills`, if given, as at most ten disjoint boxes.
Box with_values(const Distribution& dist, const Box& needed, const BoundaryConditions& boundaries,
                std::vector<Box>* fills) {
  Box box = needed;
  for (Dim d : all_dims) {
    const Index n = dist.extents()[d];
    box.set(d, boundaries(d, Side::low) == Boundary::none ? std::max<Index>(box.lower(d), 0) : box.lower(d),
            boundaries(d, Side::high) == Boundary::none ? std::min(box.upper(d), n) : box.upper(d));
  }
  for (Dim d : all_dims) {
    if (box.empty()) return {};
    const Index n = dist.extents()[d], lo = box.lower(d), hi = box.upper(d);
    const Index from = boundaries(d, Side::low) == Boundary::zero ? std::clamp<Index>(0, lo, hi) : lo;
    const Index to = boundaries(d, Side::high) == Boundary::zero ? std::clamp(n, from, hi) : hi;
    const auto slab = [&](Index slab_lo, Index slab_hi) {
      if (fills == nullptr || slab_lo >= slab_hi) return;
      fills->push_back(box);
      fills->back().set(d, slab_lo, slab_hi);
    };
    slab(lo, from);
    slab(to, hi);
    box.set(d, from, to);
    if (n == 0 && from < to)
      throw InvalidArgument("aloni::halo: transfer plan", std::string("boundary of ") + views::name(d),
                            name(boundaries(d, lo < 0 ? Side::low : Side::high)),
                            "zero or none, because the tensor has no elements in this dimension");
  }
  return box.empty() ? Box{} : box;
}

template <class F>
void for_each_product(const Segments& segments, F&& f) {
  for (const auto& s : segments)
    if (s.empty()) return;
  std::array<std::size_t, num_dims> at{};
  while (true) {
    Move move;
    std::array<int, num_dims> blocks;
    for (std::size_t i = 0; i < num_dims; ++i) {
      const Segment& s = segments[i][at[i]];
      move.destination.lo[i] = s.destination.lo;
      move.destination.hi[i] = s.destination.hi;
      move.source.lo[i] = s.source.lo;
      move.source.hi[i] = s.source.hi;
      move.step[i] = s.step;
      blocks[i] = s.block;
    }
    f(move, blocks);
    int i = num_dims - 1;
    while (i >= 0 && ++at[static_cast<std::size_t>(i)] == segments[static_cast<std::size_t>(i)].size())
      at[static_cast<std::size_t>(i--)] = 0;
    if (i < 0) return;
  }
}

void append(Message& message, const Move& move) {
  message.moves.push_back(move);
  message.elements += move.source.size();
}

enum class OwnCells { copied, left_in_place };

void check_rank(const Distribution& source, int rank) {
  if (rank < 0 || rank >= source.ranks())
    throw InvalidArgument("aloni::halo: transfer plan", "rank", std::to_string(rank),
                          "a rank from 0 to " + std::to_string(source.ranks() - 1));
}

/// The first rank of a rank's replica. All messages stay within the replica.
int first_of_replica(const Distribution& source, int rank) { return rank - rank % source.grid().size(); }

std::vector<int> replica_of(const Distribution& source, int rank) {
  std::vector<int> ranks(static_cast<std::size_t>(source.grid().size()));
  std::iota(ranks.begin(), ranks.end(), first_of_replica(source, rank));
  return ranks;
}

// The receives, local copies and fills of a rank: its needed box, divided by owner.
TransferPlan plan_receives(const Distribution& source, const NeededBox& needed, const BoundaryConditions& boundaries,
                           int rank, OwnCells own) {
  check_rank(source, rank);
  const int first = first_of_replica(source, rank);
  const auto mine = source.grid().coordinate(rank);
  TransferPlan result;
  Segments segments;
  const Box box = with_values(source, needed(rank), boundaries, &result.fills);
  for (Dim d : all_dims)
    split(source, d, box.lower(d), box.upper(d), boundaries, segments[static_cast<std::size_t>(position(d))]);
  std::map<int, Message> by_owner;
  if (!box.empty())
    for_each_product(segments, [&](const Move& move, std::array<int, num_dims> blocks) {
      for (std::size_t i = 0; i < num_dims; ++i)
        if (blocks[i] == Segment::any_block) blocks[i] = mine[i];
      const int owner = first + source.grid().rank_of(blocks);
      if (owner != rank)
        append(by_owner[owner], move);
      else if (own == OwnCells::copied || move.destination != move.source)
        result.local.push_back(move);
    });
  for (auto& [owner, message] : by_owner) {
    message.peer = owner;
    result.receives.push_back(std::move(message));
  }
  return result;
}

// Enumerates the moves of every other reader in the replica as plan_receives does, but only segments in this rank's
// block. Leaving out segments does not change the order of the others, so the moves have the receiver's order.
std::vector<Message> plan_sends(const Distribution& source, const NeededBox& needed,
                                const BoundaryConditions& boundaries, int rank, const std::vector<int>& readers) {
  const int first = first_of_replica(source, rank), end = first + source.grid().size();
  const auto mine = source.grid().coordinate(rank);
  std::vector<Message> sends;
  Segments segments;
  for (const int peer : readers) {
    if (peer == rank || peer < first || peer >= end) continue;
    const Box box = with_values(source, needed(peer), boundaries, nullptr);
    if (box.empty()) continue;
    const auto theirs = source.grid().coordinate(peer);
    bool any = true;
    for (Dim d : all_dims) {
      const auto i = static_cast<std::size_t>(position(d));
      split(source, d, box.lower(d), box.upper(d), boundaries, segments[i]);
      std::erase_if(segments[i],
                    [&](const Segment& s) { return (s.block == Segment::any_block ? theirs[i] : s.block) != mine[i]; });
      any = any && !segments[i].empty();
      if (!any) break;
    }
    if (!any) continue;
    Message message;
    message.peer = peer;
    for_each_product(segments, [&](const Move& move, const std::array<int, num_dims>&) { append(message, move); });
    sends.push_back(std::move(message));
  }
  return sends;
}

TransferPlan plan(const Distribution& source, const NeededBox& needed, const BoundaryConditions& boundaries, int rank,
                  OwnCells own, const std::vector<int>& readers) {
  TransferPlan result = plan_receives(source, needed, boundaries, rank, own);
  result.sends = plan_sends(source, needed, boundaries, rank, readers);
  return result;
}

// Checks that the needed range of a block in each dimension contains the block, and depends only on the block's range
// in that dimension.
void check_product(const Distribution& dist, const NeededBox& needed) {
  const auto refuse = [](Dim d, int rank, const std::string& value, const char* expectation) {
    throw Unsupported("aloni::halo::plan_halo_by_dimension",
                      std::string(views::name(d)) + " of rank " + std::to_string(rank), value,
                      std::string(expectation) + "; exchange with all neighbours at once instead");
  };
  std::array<std::map<std::pair<Index, Index>, Range>, num_dims> seen;
  for (int rank = 0; rank < dist.ranks(); ++rank) {
    const Box own = dist.owned(rank), box = needed(rank);
    for (Dim d : all_dims) {
      const auto text = [&](const Box& b) {
        return "[" + std::to_string(b.lower(d)) + "," + std::to_string(b.upper(d)) + ")";
      };
      if (own.extent(d) == 0) refuse(d, rank, "an empty block", "blocks of at least one index");
      if (box.lower(d) > own.lower(d) || box.upper(d) < own.upper(d))
        refuse(d, rank, "needs " + text(box), "a range that contains the owned one");
      const Range mine{box.lower(d), box.upper(d)};
      auto& known = seen[static_cast<std::size_t>(position(d))];
      const Range first = known.try_emplace({own.lower(d), own.upper(d)}, mine).first->second;
      if (first.lo != mine.lo || first.hi != mine.hi)
        refuse(d, rank, "needs " + text(box), "equal ghost widths on all ranks that own the same indices there");
    }
  }
}

}  // namespace

std::array<TransferPlan, num_dims> plan_halo_by_dimension(const Distribution& distribution, const NeededBox& needed,
                                                          const BoundaryConditions& boundaries, int rank) {
  check_rank(distribution, rank);
  check_product(distribution, needed);
  std::array<TransferPlan, num_dims> steps;
  // The ranges that earlier steps have filled, on this rank and on its neighbours along the next axis.
  const Box mine = needed(rank);
  std::vector<std::pair<Dim, Range>> filled;
  for (Dim d : all_dims) {
    const auto widened = [&](int r) {
      Box box = distribution.owned(r);
      const Box all = needed(r);
      box.set(d, all.lower(d), all.upper(d));
      return box;
    };
    TransferPlan& step = steps[static_cast<std::size_t>(position(d))];
    step = plan(distribution, widened, boundaries, rank, OwnCells::left_in_place, replica_of(distribution, rank));
    const auto extend = [&](Box& box) {
      for (const auto& [dim, range] : filled) box.set(dim, range.lo, range.hi);
    };
    const auto extend_moves = [&](std::vector<Move>& moves) {
      for (Move& m : moves) {
        extend(m.destination);
        extend(m.source);
        for (const auto& [dim, range] : filled) m.step[static_cast<std::size_t>(position(dim))] = 1;
      }
    };
    for (auto* messages : {&step.sends, &step.receives}) {
      for (Message& message : *messages) {
        extend_moves(message.moves);
        message.elements = 0;
        for (const Move& m : message.moves) message.elements += m.source.size();
      }
    }
    extend_moves(step.local);
    for (Box& box : step.fills) extend(box);
    const auto from = [&](Side side, Index outermost, Index of_domain) {
      if (boundaries(d, side) != Boundary::none) return outermost;
      return side == Side::low ? std::max(outermost, of_domain) : std::min(outermost, of_domain);
    };
    filled.emplace_back(
        d, Range{from(Side::low, mine.lower(d), 0), from(Side::high, mine.upper(d), distribution.extents()[d])});
  }
  return steps;
}

TransferPlan plan_halo(const Distribution& distribution, const NeededBox& needed, const BoundaryConditions& boundaries,
                       int rank, const std::vector<int>& readers) {
  return plan(distribution, needed, boundaries, rank, OwnCells::left_in_place, readers);
}

TransferPlan plan_halo(const Distribution& distribution, const NeededBox& needed, const BoundaryConditions& boundaries,
                       int rank) {
  check_rank(distribution, rank);
  return plan_halo(distribution, needed, boundaries, rank, replica_of(distribution, rank));
}

TransferPlan plan_halo_receives(const Distribution& distribution, const NeededBox& needed,
                                const BoundaryConditions& boundaries, int rank) {
  return plan_receives(distribution, needed, boundaries, rank, OwnCells::left_in_place);
}

TransferPlan plan_redistribution(const Distribution& source, const Distribution& destination, const NeededBox& needed,
                                 const BoundaryConditions& boundaries, int rank, const std::vector<int>& readers) {
  if (source.extents() != destination.extents())
    throw InvalidArgument("aloni::halo::plan_redistribution", "destination.extents()", to_string(destination.extents()),
                          to_string(source.extents()) + ", the extents of the source");
  if (source.ranks() != destination.ranks())
    throw InvalidArgument("aloni::halo::plan_redistribution", "destination.ranks()",
                          std::to_string(destination.ranks()),
                          std::to_string(source.ranks()) + ", the ranks of the source");
  return plan(source, needed, boundaries, rank, OwnCells::copied, readers);
}

TransferPlan plan_redistribution(const Distribution& source, const Distribution& destination, const NeededBox& needed,
                                 const BoundaryConditions& boundaries, int rank) {
  check_rank(source, rank);
  return plan_redistribution(source, destination, needed, boundaries, rank, replica_of(source, rank));
}

TransferPlan plan_redistribution(const Distribution& source, const Distribution& destination, int rank) {
  check_rank(source, rank);
  return plan_redistribution(
      source, destination, [&](int r) { return destination.owned(r); }, BoundaryConditions{}, rank,
      destination.owners(source.owned(rank)));
}

TransferCount count(const TransferPlan& plan) {
  TransferCount c;
  for (const Message& m : plan.sends) {
    ++c.sent_messages;
    c.sent_elements += m.elements;
  }
  for (const Message& m : plan.receives) {
    ++c.received_messages;
    c.received_elements += m.elements;
  }
  for (const Move& m : plan.local) c.local_elements += m.destination.size();
  for (const Box& b : plan.fills) c.filled_elements += b.size();
  return c;
}

std::uint64_t agreement_digest(const Distribution& source, const Distribution& destination, const NeededBox& needed,
                               const BoundaryConditions& boundaries) {
  std::uint64_t digest = 14695981039346656037U;  // FNV-1a
  const auto add = [&](Index value) {
    for (int byte = 0; byte < 8; ++byte) {
      digest ^= static_cast<std::uint64_t>(value >> (8 * byte)) & 0xffU;
      digest *= 1099511628211U;
    }
  };
  for (const Distribution* dist : {&source, &destination}) {
    add(dist->ranks());
    for (Dim d : all_dims) {
      add(dist->extents()[d]);
      add(dist->grid()[d]);
      add(dist->replicated(d) ? 1 : 0);
      for (Index border : dist->borders(d)) add(border);
    }
  }
  for (int rank = 0; rank < source.ranks(); ++rank) {
    const Box box = needed(rank);
    for (Dim d : all_dims) {
      add(box.lower(d));
      add(box.upper(d));
    }
  }
  for (const auto& sides : boundaries.kinds)
    for (Boundary b : sides) add(static_cast<Index>(b));
  return digest;
}

}  // namespace aloni::halo
