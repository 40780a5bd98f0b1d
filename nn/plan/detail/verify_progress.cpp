#include <aloni/nn/plan/detail/verify_progress.hpp>

#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

/// A communication in the list of one rank.
struct Stop {
  const PlanNode* node = nullptr;
  std::vector<int> partners;  ///< the other ranks of its messages, or of its sum
};

struct Rank {
  const StepPlan* plan = nullptr;
  std::vector<Stop> stops = {};
  std::vector<int> place_of = {};  ///< by number of the communication; -1: not in the list
  std::size_t at = 0;              ///< the stop at which the rank waits
  std::vector<int> waiting = {};   ///< ranks that wait for this one

  bool has_come_to(int communication) const {
    const int place = place_of[static_cast<std::size_t>(communication)];
    return place >= 0 && static_cast<std::size_t>(place) <= at;
  }
  bool has_ended() const { return at == stops.size(); }
  const Stop& stop() const { return stops[at]; }
};

std::vector<int> partners_of(const StepPlan& plan, const PlanNode& node, std::size_t ranks) {
  std::vector<int> partners;
  const auto add = [&](int rank, const char* what) {
    if (rank < 0 || rank >= static_cast<int>(ranks)) refuse(plan, &node, what + std::to_string(rank));
    if (rank != plan.rank) partners.push_back(rank);
  };
  if (const auto* sum = std::get_if<ReductionWork>(&node.work)) {
    for (const int member : sum->members) add(member, "the members of a sum contain rank ");
  } else {
    for (const TransferItemPlan& item : std::get<TransferWork>(node.work).items)
      for (const auto* messages : {&item.plan.sends, &item.plan.receives})
        for (const halo::Message& m : *messages) add(m.peer, "a message to or from rank ");
  }
  std::ranges::sort(partners);
  partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  return partners;
}

class Rendezvous {
 public:
  explicit Rendezvous(std::span<const StepPlan> plans) {
    for (const StepPlan& plan : plans) {
      Rank rank{.plan = &plan};
      rank.place_of.assign(static_cast<std::size_t>(plans[0].communications), -1);
      for (const PlanNode& n : plan.nodes) {
        if (n.kind() == NodeKind::kernel) continue;
        if (n.communication < 0 || n.communication >= plans[0].communications)
          refuse(plan, &n, "communication " + std::to_string(n.communication) + " does not exist");
        rank.place_of[static_cast<std::size_t>(n.communication)] = static_cast<int>(rank.stops.size());
        rank.stops.push_back({&n, partners_of(plan, n, plans.size())});
      }
      ranks_.push_back(std::move(rank));
    }
  }

  void run() {
    std::vector<int> ready;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) ready.push_back(r);
    while (!ready.empty()) {
      const int r = ready.back();
      ready.pop_back();
      advance(r, ready);
    }
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
      if (!at(r).has_ended()) explain(r);
  }

 private:
  Rank& at(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  /// The first rank for which `r` waits; -1: it goes on.
  int awaited(int r) {
    const Stop& stop = at(r).stop();
    for (const int partner : stop.partners)
      if (!at(partner).has_come_to(stop.node->communication)) return partner;
    return -1;
  }

  void advance(int r, std::vector<int>& ready) {
    Rank& rank = at(r);
    while (!rank.has_ended()) {
      if (const int partner = awaited(r); partner >= 0) {
        at(partner).waiting.push_back(r);
        return;
      }
      ++rank.at;
      const std::vector<int> woken = std::exchange(rank.waiting, {});
      ready.insert(ready.end(), woken.begin(), woken.end());
    }
  }

  /// Follows the rank for which each rank waits, to a circle or to a rank that leaves a communication out.
  [[noreturn]] void explain(int r) {
    std::vector<int> chain;
    while (std::ranges::find(chain, r) == chain.end()) {
      chain.push_back(r);
      const int partner = awaited(r);
      const int number = at(r).stop().node->communication;
      if (at(partner).has_ended() || at(partner).place_of[static_cast<std::size_t>(number)] < 0) {
        throw Found{{"waits forever for rank " + std::to_string(partner) + ", which does not take part",
                     at(r).stop().node->label,
                     {r, partner}}};
      }
      r = partner;
    }
    const std::vector<int> circle(std::ranges::find(chain, r), chain.end());
    std::string what = "the ranks wait for each other forever";
    for (const int rank : circle)
      what += "; rank " + std::to_string(rank) + " in \"" + at(rank).stop().node->label + "\" for rank " +
              std::to_string(awaited(rank));
    throw Found{{what, at(r).stop().node->label, circle}};
  }

  std::vector<Rank> ranks_;
};

}  // namespace

void check_progress(std::span<const StepPlan> plans) { Rendezvous(plans).run(); }

}  // namespace aloni::nn::detail
