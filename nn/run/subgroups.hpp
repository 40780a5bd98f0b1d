#pragma once
// Communicators of groups of ranks, one for each list of members.
//
//   Subgroups groups(comm);
//   groups.of({0, 2});   // made at the first call, on ranks 0 and 2
//   groups.of({0, 2});   // the same communicator
#include <aloni/core/comm/communicator.hpp>

#include <map>
#include <numeric>
#include <vector>

namespace aloni::nn {

class Subgroups {
 public:
  /// The list of all ranks has the communicator `all`.
  explicit Subgroups(const comm::Communicator& all) : all_(all) {
    std::vector<int> ranks(static_cast<std::size_t>(all.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    use(ranks, all);
  }

  /// A communicator that exists already. All its ranks call it before the first of() with these members.
  void use(const std::vector<int>& members, const comm::Communicator& group) { known_.try_emplace(members, group); }
  /// `members`: ranks of `all`, ascending, with this rank. All members ask for their groups in the same order.
  /// Collective over `members`.
  const comm::Communicator& of(const std::vector<int>& members) {
    const auto found = known_.find(members);
    return found != known_.end() ? found->second : known_.emplace(members, all_.subgroup(members)).first->second;
  }

 private:
  comm::Communicator all_;
  std::map<std::vector<int>, comm::Communicator> known_;
};

}  // namespace aloni::nn
