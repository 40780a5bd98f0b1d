#include <aloni/core/comm/engine/program.hpp>

#include <aloni/core/comm/engine/message_index.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace aloni::comm::detail {

namespace {

std::uint16_t narrow(std::size_t n, std::size_t most, const std::string& what) {
  if (n <= most) return static_cast<std::uint16_t>(n);
  throw Unsupported("aloni::comm::compile", what, std::to_string(n),
                    "at most " + std::to_string(most) + "; divide the schedule into several");
}

/// The next number among the messages of one kind to or from one rank.
std::uint16_t next_index(std::size_t& messages, const Step& s) {
  const bool sends = s.kind == Step::Kind::send;
  narrow(++messages, first_special_index,
         (sends ? "messages to rank " : "messages from rank ") + std::to_string(s.peer));
  return static_cast<std::uint16_t>(messages - 1);
}

}  // namespace

Program compile(const Schedule& schedule, std::span<const int> root_ranks) {
  Program p{
      .input = schedule.input, .output = schedule.output, .scratch = schedule.scratch, .exposed = schedule.exposed};
  for (const int r : schedule.exposed_to) p.combined.push_back(root_ranks[static_cast<std::size_t>(r)]);
  const std::size_t n = schedule.steps.size();
  const auto root = [&](int rank) { return root_ranks[static_cast<std::size_t>(rank)]; };

  std::vector<std::vector<int>> dependents(n);
  std::map<std::pair<Step::Kind, int>, std::size_t> messages;
  for (std::size_t i = 0; i < n; ++i) {
    const Step& s = schedule.steps[i];
    for (const int d : schedule.dependencies_of(s))
      dependents[static_cast<std::size_t>(d)].push_back(static_cast<int>(i));
    p.waiting.push_back(narrow(static_cast<std::size_t>(s.num_dependencies), std::numeric_limits<std::uint16_t>::max(),
                               "dependencies of a step"));
    if (s.num_dependencies == 0) p.first.push_back(static_cast<int>(i));
    Program::Instruction instruction{.step = s};
    if (s.is_message()) {
      instruction.step.peer = root(s.peer);
      instruction.index = next_index(messages[{s.kind, s.peer}], s);
    }
    p.instructions.push_back(instruction);
  }
  std::ranges::reverse(p.first);

  for (std::size_t i = 0; i < n; ++i) {
    auto& instruction = p.instructions[i];
    instruction.first_dependent = static_cast<int>(p.dependents.size());
    instruction.num_dependents = static_cast<int>(dependents[i].size());
    p.dependents.insert(p.dependents.end(), dependents[i].begin(), dependents[i].end());
    const Step& s = instruction.step;
    if (s.kind == Step::Kind::receive && dependents[i].size() == 1) {
      const Step& only = schedule.steps[static_cast<std::size_t>(dependents[i].front())];
      if (only.kind == Step::Kind::reduce && only.from == s.to && s.to.buffer == Buffer::scratch)
        instruction.fused = dependents[i].front();
    }
    if (s.is_message() && !p.combined.empty()) {
      const auto place = std::ranges::find(p.combined, s.peer);
      const Index elements = s.kind == Step::Kind::send ? s.from.count : s.to.count;
      if (elements == 0 && place != p.combined.end())
        instruction.exposed_slot = static_cast<int>(place - p.combined.begin());
    }
  }
  const auto own = std::ranges::find(p.combined, root(schedule.rank));
  if (own != p.combined.end()) p.own_slot = static_cast<int>(own - p.combined.begin());
  return p;
}

}  // namespace aloni::comm::detail
