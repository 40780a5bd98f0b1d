#pragma once
// A collective operation as data: what one rank sends, receives, adds up and copies, and what must be complete before what.
// A schedule is built by a pure function of the rank, the group's size and the number of elements (algorithms.hpp, or a
// function of the user's own), proved for all ranks together (verify.hpp), and can be run any number of times.
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
// Counts and offsets are in elements of whatever type the operation is called with. Ranks are those of the communicator.
// The k-th message that a rank sends to another is received by the k-th receive there, both in the order of the steps; the
// steps themselves start whenever what they depend on is complete.
//
// Ranks that share memory can do without messages of data: each exposes a region, and a combine step makes the same elements of
// several ranks' exposed regions their reduction, in all of them, in one pass. That the others aren't using them meanwhile is
// what messages of no elements are for.
#include <aloni/core/index.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace aloni::comm {

/// The caller's values to read, the caller's values to write (of operations in place: both), and memory of the engine's.
enum class Buffer : std::uint8_t { input, output, scratch };

struct Region {
  Buffer buffer = Buffer::output;
  Index offset = 0, count = 0;

  /// @pre 0 ≤ offset, offset + count ≤ this->count
  Region part(Index first, Index size) const { return {buffer, offset + first, size}; }
  friend bool operator==(const Region&, const Region&) = default;
};

/// One of `blocks` parts of about equal size, the larger ones first. @pre 0 ≤ block < blocks
Region block_of(Region whole, int block, int blocks);
/// Neighbouring blocks first … last - 1.
Region blocks_of(Region whole, int first, int last, int blocks);

/// Which operand of a reduction comes first; addition of floating-point numbers is the same both ways, concatenation isn't.
enum class Operands : std::uint8_t { from_first, to_first };

struct Step {
  enum class Kind : std::uint8_t { send, receive, reduce, copy, combine };

  Kind kind{};
  Operands operands{};  ///< of a reduction
  int peer = -1;        ///< of a message
  Region from{}, to{};  ///< send: from; receive: to; copy: to = from; reduce: to = from ∘ to, or to ∘ from; combine: to
  Index place = 0;      ///< combine: where the others' elements begin in what they expose
  int first_dependency = 0, num_dependencies = 0;

  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
};

/// What one rank does.
struct Schedule {
  int rank = 0;
  std::vector<Step> steps{};        ///< each depends on earlier ones only
  std::vector<int> dependencies{};  ///< numbers of steps, ascending within one step's part
  Region exposed{};                 ///< what the combine steps of other ranks read and write
  std::vector<int> exposed_to{};    ///< the ranks of combine steps, this one among them, in the order of operands
  Index input = 0, output = 0, scratch = 0;  ///< elements of the buffers

  std::span<const int> dependencies_of(const Step& s) const {
    return std::span(dependencies)
        .subspan(static_cast<std::size_t>(s.first_dependency), static_cast<std::size_t>(s.num_dependencies));
  }
  /// What this rank sends in all.
  Index elements_sent() const;
  int messages_sent() const;
};

}  // namespace aloni::comm
