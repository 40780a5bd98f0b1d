#include <aloni/halo/placement/detail/link_rounds.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace aloni::halo::detail {

namespace {

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

/// The rounds of a tournament of n players by the circle method: the last player stays, the others rotate.
std::vector<Pairs> tournament(std::size_t n) {
  const std::size_t seats = n + n % 2;  // the player that meets the empty seat rests
  std::vector<Pairs> rounds;
  for (std::size_t round = 0; round + 1 < seats; ++round) {
    auto& pairs = rounds.emplace_back();
    for (std::size_t i = 0; i < seats / 2; ++i) {
      const std::size_t turning = seats - 1;
      const std::size_t a = (round + i) % turning, b = i == 0 ? turning : (round + turning - i) % turning;
      if (a < n && b < n) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

}  // namespace

std::vector<std::vector<int>> link_rounds(const std::vector<std::vector<int>>& nodes, BetweenNodes between) {
  std::size_t ranks = 0, most = 0;
  for (const auto& node : nodes) {
    ranks += node.size();
    most = std::max(most, node.size());
  }
  std::vector<int> no_pairs(ranks);
  std::iota(no_pairs.begin(), no_pairs.end(), 0);
  std::vector<std::vector<int>> rounds;
  const auto meet = [&](int a, int b) {
    rounds.back()[static_cast<std::size_t>(a)] = b;
    rounds.back()[static_cast<std::size_t>(b)] = a;
  };

  // Smaller nodes need fewer rounds; their ranks then rest.
  for (std::size_t round = 0; round < tournament(most).size(); ++round) {
    rounds.push_back(no_pairs);
    for (const auto& node : nodes) {
      const auto own = tournament(node.size());
      if (round >= own.size()) continue;
      for (const auto& [i, j] : own[round]) meet(node[i], node[j]);
    }
  }
  for (const Pairs& pairs : tournament(nodes.size())) {
    for (std::size_t shift = 0; shift < (between == BetweenNodes::all_pairs ? most : 1); ++shift) {
      rounds.push_back(no_pairs);
      for (const auto& [a, b] : pairs) {
        const auto &here = nodes[a], &there = nodes[b];
        const std::size_t turn = std::max(here.size(), there.size());
        if (shift >= turn) continue;
        for (std::size_t i = 0; i < here.size(); ++i)
          if (const std::size_t j = (i + shift) % turn; j < there.size()) meet(here[i], there[j]);
      }
    }
  }
  return rounds;
}

}  // namespace aloni::halo::detail
