#pragma once
// Program: a schedule compiled for the engine. It has the dependents of each step, ranks of the root communicator and
// message numbers. For each receive it has the reduction that can be fused with it.
#include <aloni/core/comm/schedule/schedule.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace aloni::comm::detail {

/// Parts of one operation in flight: while one part waits for messages, the next one runs.
inline constexpr std::uint32_t parts_in_flight = 2;

struct Program {
  struct Instruction {
    Step step;                ///< its peer is a rank of the root communicator
    std::uint16_t index = 0;  ///< message: its number among the messages to or from this peer
    int first_dependent = 0, num_dependents = 0;
    int fused = -1;         ///< receive: the reduction that is its only reader; -1: none
    int exposed_slot = -1;  ///< empty message of a schedule that exposes memory: the peer's position in `combined`
  };

  std::vector<Instruction> instructions{};
  std::vector<int> dependents{};
  std::vector<std::uint16_t> waiting{};  ///< for each instruction, its number of dependencies
  std::vector<int> first{};              ///< instructions without dependencies, in reverse order
  std::vector<int> combined{};           ///< Schedule::exposed_to as ranks of the root communicator
  Index input = 0, output = 0, scratch = 0;
  Region exposed{};
  int own_slot = -1;  ///< this rank's position in `combined`

  std::span<const int> dependents_of(const Instruction& i) const {
    return std::span(dependents)
        .subspan(static_cast<std::size_t>(i.first_dependent), static_cast<std::size_t>(i.num_dependents));
  }
};

/// `root_ranks[r]`: rank in the root communicator of the schedule's rank r. Throws Unsupported for more than 65,529
/// messages to or from one rank (message_index.hpp), and for a step with more than 65,535 dependencies.
Program compile(const Schedule& schedule, std::span<const int> root_ranks);

}  // namespace aloni::comm::detail
