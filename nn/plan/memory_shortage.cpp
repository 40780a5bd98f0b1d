#include <aloni/nn/plan/memory_shortage.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/plan/largest_memory.hpp>
#include <aloni/nn/plan/offloading.hpp>
#include <aloni/nn/plan/recomputation.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace aloni::nn {

namespace {

using views::Dim;

/// Consecutive ranks fill nodes of the size of the largest one. Tuning is for one number of ranks.
MachineDescription with_more_ranks(MachineDescription machine, int ranks) {
  machine.tuning.reset();
  if (machine.nodes.empty()) return machine;
  std::vector<int> sizes;
  for (const int node : machine.nodes) {
    const auto n = static_cast<std::size_t>(node);
    if (n >= sizes.size()) sizes.resize(n + 1);
    ++sizes[n];
  }
  machine.nodes = machine_of_nodes(ranks, *std::ranges::max_element(sizes)).nodes;
  return machine;
}

}  // namespace

std::string to_string(const MemoryShortage& s) {
  std::string text = "at least " + std::to_string(s.needed) + " bytes, " + std::to_string(s.needed - s.limit) +
                     " bytes more than the limit";
  if (!s.layer.empty()) text += "; most are in use at layer " + s.layer;
  return text;
}

std::string to_string(const WaysToNeedLess& ways) {
  std::vector<std::string> all;
  if (ways.recompute) all.emplace_back("recomputation \"auto\"");
  if (ways.offload) all.emplace_back("offloading \"auto\"");
  all.emplace_back("a smaller mini-batch");
  if (ways.micro_batches) all.emplace_back("more micro-batches");
  if (ways.ranks_and_strategy) {
    all.emplace_back("more ranks");
    all.emplace_back("another strategy");
  }
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_last = i + 1 == all.size();
    text += (i == 0 ? "" : !is_last ? ", " : all.size() == 2 ? " or " : ", or ") + all[i];
  }
  text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text + " would help";
}

WaysToNeedLess ways_beside(const MemoryWish& wish, const MachineDescription& machine) {
  return {.recompute = wish.recompute != "auto",
          .offload = wish.offload != "auto" && !machine.on_host,
          .micro_batches = true};
}

std::string to_string(const MoreRanks& more) {
  if (more.most == 0) return {};
  const std::string note = more.note.empty() ? "" : " (" + more.note + ")";
  const std::string number = more.step == 1 ? "number" : "multiple of " + std::to_string(more.step);
  if (more.ranks > 0)
    return std::to_string(more.ranks) + " ranks would do" + note + ": the least " + number + " that was found";
  return "No " + number + " up to " + std::to_string(more.most) + " ranks was found that would do" + note;
}

MoreRanks find_more_ranks(int ranks, const RankNumbers& numbers, double factor, const std::function<bool(int)>& fits) {
  constexpr int most_doublings = 10, most_known = std::numeric_limits<int>::max() / 4;
  const int step = numbers.step;
  const int most = (numbers.most > 0 ? numbers.most : most_known) / step * step;
  MoreRanks more{.step = step};
  int low = ranks / step * step;  // does not fit, or is not more
  int tries = 0;
  for (int i = 0; i < most_doublings && tries < numbers.tries && low < most; ++i) {
    const int next = std::min(most, low == 0 ? step : 2 * low);
    more.most = next;
    if (next != 2 * low || next >= factor * ranks) {
      ++tries;
      if (fits(next)) {
        more.ranks = next;
        break;
      }
    }
    low = next;
  }
  if (more.ranks == 0) return more;
  while (more.ranks - low > step) {
    const int middle = low + (more.ranks - low) / step / 2 * step;
    (fits(middle) ? more.ranks : low) = middle;
  }
  return more;
}

MoreRanks find_more_sample_blocks(const GivenStep& step, const MachineDescription& machine, Index limit, Index needed) {
  int blocks = 1;
  for (const LayerSplit& split : step.splits) blocks = std::max(blocks, split.grid[Dim::sample]);
  const Index most_factor = std::min<Index>(step.samples / blocks, 1'000'000 / step.ranks);
  if (most_factor < 2) return {.step = step.ranks};
  MemoryWish wish = step.wish;
  wish.limit = limit;
  const bool chooses = step.kind == StepKind::training && (wish.recompute == "auto" || wish.offload == "auto");
  StepOptions options = step.options;
  options.recompute =
      chooses || wish.recompute.empty() ? Recomputation{} : recomputed_blocks(step.network, wish.recompute);
  options.offload = chooses || wish.offload.empty() ? Offloading{} : offloaded_layers(step.network, wish.offload);
  const auto fits = [&](int ranks) {
    std::vector<LayerSplit> splits = step.splits;
    for (LayerSplit& split : splits) split.grid[Dim::sample] *= ranks / step.ranks;
    const NetworkPlan layers = plan_network(step.network, splits, ranks, step.samples);
    const MachineDescription larger = with_more_ranks(machine, ranks);
    if (!chooses) return largest_memory(step.network, layers, larger, step.kind, options, limit).peak <= limit;
    try {
      memory_savings_for(step.network, layers, larger, options, wish);
    } catch (const InvalidArgument&) {
      return false;
    }
    return true;
  };
  const RankNumbers numbers{.step = step.ranks, .most = step.ranks * static_cast<int>(most_factor)};
  // k times the ranks need a k-th of the memory at best; a choice may save more of it.
  const double least_factor =
      chooses ? 1 : static_cast<double>(needed) / static_cast<double>(std::max<Index>(1, limit));
  MoreRanks more = find_more_ranks(step.ranks, numbers, least_factor, fits);
  more.note = more.ranks > 0 ? "with " + std::to_string(more.ranks / step.ranks) + " times the blocks of samples"
                             : "with more blocks of samples";
  return more;
}

MemorySavings savings_or_ways_out(const GivenStep& step, const NetworkPlan& layers, const MachineDescription& machine) {
  try {
    return memory_savings_for(step.network, layers, machine, step.options, step.wish);
  } catch (const InvalidArgument& e) {
    if (e.argument() != memory_limit_argument) throw;
    const std::string ranks = to_string(find_more_sample_blocks(step, machine, *step.wish.limit));
    if (ranks.empty()) throw;
    throw InvalidArgument(e.operation(), e.argument(), e.value(), e.expectation() + ". " + ranks);
  }
}

std::string ways_out(const GivenStep& step, const MachineDescription& machine, Index limit, Index needed) {
  const std::string ranks = to_string(find_more_sample_blocks(step, machine, limit, needed));
  const WaysToNeedLess ways = step.kind == StepKind::training ? ways_beside(step.wish, machine) : WaysToNeedLess{};
  return ranks + (ranks.empty() ? "" : ". ") + to_string(ways);
}

}  // namespace aloni::nn
