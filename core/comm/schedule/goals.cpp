#include <aloni/core/comm/schedule/verify.hpp>

#include <aloni/core/error.hpp>

#include <string>

namespace aloni::comm {

namespace {

constexpr std::uint64_t only(int rank) { return std::uint64_t{1} << rank; }

std::uint64_t all_of(int size) {
  if (size < 1 || size > 64)
    throw InvalidArgument("aloni::comm::verify", "size", std::to_string(size), "1 to 64 ranks");
  return size == 64 ? ~std::uint64_t{0} : only(size) - 1;
}

std::vector<Content> elements(Index count, std::uint64_t ranks) {
  std::vector<Content> v(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = {i, ranks};
  return v;
}

Goal goal_of(int size) {
  Goal goal;
  goal.ranks.resize(static_cast<std::size_t>(size));
  return goal;
}

/// Calls f(rank, first, last) with the elements of each rank's block.
template <class F>
void for_each_block(int size, Index count, F&& f) {
  for (int r = 0; r < size; ++r) {
    const Region block = block_of({Buffer::output, 0, count}, r, size);
    f(r, block.offset, block.offset + block.count);
  }
}

}  // namespace

Goal all_reduce_goal(int size, Index count) {
  const auto all = all_of(size);
  Goal goal = goal_of(size);
  for (int r = 0; r < size; ++r)
    goal.ranks[static_cast<std::size_t>(r)] = {{}, elements(count, only(r)), elements(count, all)};
  return goal;
}

Goal reduce_scatter_goal(int size, Index count) {
  const auto all = all_of(size);
  Goal goal = goal_of(size);
  for_each_block(size, count, [&](int r, Index first, Index last) {
    auto& mine = goal.ranks[static_cast<std::size_t>(r)];
    mine.output = elements(count, only(r));
    mine.after.resize(static_cast<std::size_t>(count));
    for (Index i = first; i < last; ++i) mine.after[static_cast<std::size_t>(i)] = {i, all};
  });
  return goal;
}

Goal all_gather_goal(int size, Index count) {
  all_of(size);
  Goal goal = goal_of(size);
  std::vector<Content> after(static_cast<std::size_t>(count));
  for_each_block(size, count, [&](int r, Index first, Index last) {
    auto& mine = goal.ranks[static_cast<std::size_t>(r)];
    mine.output.resize(static_cast<std::size_t>(count));
    for (Index i = first; i < last; ++i) {
      mine.output[static_cast<std::size_t>(i)] = after[static_cast<std::size_t>(i)] = {i, only(r)};
    }
  });
  for (auto& r : goal.ranks) r.after = after;
  return goal;
}

Goal broadcast_goal(int size, Index count, int root) {
  all_of(size);
  Goal goal = goal_of(size);
  for (auto& r : goal.ranks) {
    r.output.resize(static_cast<std::size_t>(count));
    r.after = elements(count, only(root));
  }
  goal.ranks[static_cast<std::size_t>(root)].output = elements(count, only(root));
  return goal;
}

Goal all_to_all_goal(const std::vector<std::vector<Index>>& counts) {
  const int size = static_cast<int>(counts.size());
  all_of(size);
  Goal goal = goal_of(size);
  for (auto& from : goal.ranks) {
    const auto r = static_cast<std::size_t>(&from - goal.ranks.data());
    Index element = 0;
    for (std::size_t to = 0; to < counts.size(); ++to) {
      for (Index k = 0; k < counts[r][to]; ++k, ++element) {
        from.input.push_back({element, only(static_cast<int>(r))});
        goal.ranks[to].after.push_back(from.input.back());
      }
    }
  }
  for (auto& r : goal.ranks) r.output.resize(r.after.size());
  return goal;
}

Goal barrier_goal(int size) {
  all_of(size);
  Goal goal = goal_of(size);
  goal.barrier = true;
  return goal;
}

}  // namespace aloni::comm
