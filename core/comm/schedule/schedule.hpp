#pragma once
// Schedule: a collective operation on one rank, as data. It lists the sends, receives, reductions and copies, and their
// dependencies. A pure function of the rank, the number of ranks and the number of elements builds it (algorithms.hpp,
// or a function of the user). verify.hpp proves the schedules of all ranks together. A schedule can run any number of
// times.
//
//   // Two ranks add up their values.
//   Schedule exchange_and_add(int rank, Index count) {
//     Builder b(rank);
//     const Region data = b.output(count), theirs = b.scratch(count);
//     b.send(1 - rank, data);
//     b.receive(1 - rank, theirs);
//     b.reduce(theirs, data, rank == 1 ? Operands::from_first : Operands::to_first);
//     return b.finish();
//   }
//
// Counts and offsets are in elements of the operation's type. Ranks are ranks of the communicator. The k-th send to a
// rank matches the k-th receive there, in the order of the steps. A step starts when its dependencies are complete.
//
// Ranks that share memory need no data messages. Each rank exposes a region. A combine step reduces the same elements
// of several ranks' exposed regions, and writes the result to all of them in one pass. Messages without elements make
// sure that the other ranks do not use these elements meanwhile.
#include <aloni/core/index.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace aloni::comm {

/// input: read-only memory of the caller. output: memory of the caller; for operations in place also the input.
/// scratch: memory of the engine.
enum class Buffer : std::uint8_t { input, output, scratch };

struct Region {
  Buffer buffer = Buffer::output;
  Index offset = 0, count = 0;

  /// `size` elements from `first` on. @pre 0 ≤ first, first + size ≤ count
  Region part(Index first, Index size) const { return {buffer, offset + first, size}; }
  friend bool operator==(const Region&, const Region&) = default;
};

/// One of `blocks` blocks of nearly equal size; the larger blocks come first. @pre 0 ≤ block < blocks
Region block_of(Region whole, int block, int blocks);
/// The blocks first … last - 1 as one region.
Region blocks_of(Region whole, int first, int last, int blocks);

/// Which operand of a reduction comes first. It matters for functions that are not commutative.
enum class Operands : std::uint8_t { from_first, to_first };

struct Step {
  enum class Kind : std::uint8_t { send, receive, reduce, copy, combine };

  Kind kind{};
  Operands operands{};  ///< reduce: order of the operands
  int peer = -1;        ///< send, receive: the other rank
  Region from{}, to{};  ///< send: from; receive: to; copy: to = from; reduce: to = from ∘ to, or to ∘ from; combine: to
  Index place = 0;      ///< combine: first element within the other ranks' exposed regions
  int first_dependency = 0, num_dependencies = 0;

  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
};

/// The steps of one rank.
struct Schedule {
  int rank = 0;
  std::vector<Step> steps{};        ///< each step depends on earlier steps only
  std::vector<int> dependencies{};  ///< step numbers; ascending within the range of one step
  Region exposed{};                 ///< region that combine steps of other ranks read and write
  std::vector<int> exposed_to{};    ///< ranks of the combine steps, including this one, in the order of operands
  Index input = 0, output = 0, scratch = 0;  ///< sizes of the buffers in elements

  std::span<const int> dependencies_of(const Step& s) const {
    return std::span(dependencies)
        .subspan(static_cast<std::size_t>(s.first_dependency), static_cast<std::size_t>(s.num_dependencies));
  }
  /// Totals of all sends of this rank.
  Index elements_sent() const;
  int messages_sent() const;
};

}  // namespace aloni::comm
