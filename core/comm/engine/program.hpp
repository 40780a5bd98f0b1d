#pragma once
// A schedule made ready to run: who waits for whom the other way round, ranks of the root communicator, numbers of messages, and
// which receptions can be added straight to where the sum goes.
#include <aloni/core/comm/schedule/schedule.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace aloni::comm::detail {

struct Program {
  struct Instruction {
    Step step;                ///< peer: of the root communicator
    std::uint16_t index = 0;  ///< of a message: the how manyth to or from this peer
    int first_dependent = 0, num_dependents = 0;
    int fused = -1;         ///< of a receive: the reduction that alone uses it
    int exposed_slot = -1;  ///< of an empty message in a schedule that exposes memory: the peer's place in `combined`
  };

  std::vector<Instruction> instructions{};
  std::vector<int> dependents{};
  std::vector<std::uint16_t> waiting{};  ///< how many each waits for
  std::vector<int> first{};              ///< those that wait for none, last one first
  std::vector<int> combined{};           ///< Schedule::exposed_to, of the root communicator
  Index input = 0, output = 0, scratch = 0;
  Region exposed{};
  int own_slot = -1;  ///< this rank's place in `combined`

  std::span<const int> dependents_of(const Instruction& i) const {
    return std::span(dependents)
        .subspan(static_cast<std::size_t>(i.first_dependent), static_cast<std::size_t>(i.num_dependents));
  }
};

/// `root_ranks[r]`: rank r of the schedule in the root communicator. Throws Unsupported when it is too long for a number of 16 bits.
Program compile(const Schedule& schedule, std::span<const int> root_ranks);

}  // namespace aloni::comm::detail
