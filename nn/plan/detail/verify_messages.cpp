#include <aloni/nn/plan/detail/verify_messages.hpp>

#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

using views::Box;

/// The nodes of all ranks with one number.
using Communication = std::vector<std::pair<const StepPlan*, const PlanNode*>>;

[[noreturn]] void refuse_pair(const Communication::value_type& a, const Communication::value_type& b,
                              const std::string& what) {
  throw Found{{what, a.second->label, {a.first->rank, b.first->rank}}};
}

/// The box around the cells that a message takes from its sender.
Box cells_of(const halo::Message& m) {
  Box cells;
  for (const halo::Move& move : m.moves) cells = hull(cells, move.source);
  return cells;
}

void check_messages(const Communication::value_type& sender, const TransferWork& work, const Communication& all) {
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    const TransferItemPlan& item = work.items[i];
    const std::string name = buffer_of(*sender.first, item.source).name + " ";
    const auto expects = [&](const halo::Message& m, bool sends) {
      const auto& peer = all[static_cast<std::size_t>(m.peer)];
      const TransferItemPlan& other = std::get<TransferWork>(peer.second->work).items[i];
      const auto& candidates = sends ? other.plan.receives : other.plan.sends;
      const auto found = std::ranges::find(candidates, sender.first->rank, &halo::Message::peer);
      const std::string cells = name + views::to_string(cells_of(m));
      if (found == candidates.end()) {
        refuse_pair(sender, peer,
                    sends ? "sends " + cells + ", which the peer does not expect"
                          : "expects " + cells + ", which the peer does not send");
      }
      if (found->moves != m.moves || found->elements != m.elements) {
        std::string what = (sends ? "sends " : "expects ") + cells + ", and the peer " +
                           (sends ? "expects " : "sends ") + views::to_string(cells_of(*found));
        for (std::size_t k = 0; k < std::min(m.moves.size(), found->moves.size()); ++k) {
          const halo::Move &mine = m.moves[k], &theirs = found->moves[k];
          if (mine == theirs) continue;
          what += "; move " + std::to_string(k) + " is " + views::to_string(mine.source) + " to " +
                  views::to_string(mine.destination) + " here and " + views::to_string(theirs.source) + " to " +
                  views::to_string(theirs.destination) + " there";
          break;
        }
        refuse_pair(sender, peer, what);
      }
      const ElementType mine = buffer_of(*sender.first, item.source).type,
                        theirs = buffer_of(*peer.first, other.source).type;
      if (mine != theirs) {
        refuse_pair(
            sender, peer,
            std::string("exchanges ") + cells + " as " + nn::name(mine) + ", and the peer as " + nn::name(theirs));
      }
    };
    const auto check = [&](const std::vector<halo::Message>& messages, bool sends) {
      for (const halo::Message& m : messages) {
        const std::string cells = name + views::to_string(cells_of(m));
        if (m.peer == sender.first->rank) refuse(*sender.first, sender.second, "a message of " + cells + " to itself");
        Index elements = 0;
        for (const halo::Move& move : m.moves) elements += move.source.size();
        if (elements != m.elements) {
          throw Found{{"a message of " + cells + " has " + std::to_string(m.elements) + " elements, and its boxes " +
                           std::to_string(elements),
                       sender.second->label,
                       {sender.first->rank, m.peer}}};
        }
        expects(m, sends);
      }
    };
    check(item.plan.sends, true);
    check(item.plan.receives, false);
  }
}

/// The source of a transfer, for people.
std::string text_of(const StepPlan& plan, const TransferWork& work) {
  std::string text = work.name;
  for (const TransferItemPlan& item : work.items)
    text += ", " + buffer_of(plan, item.source).name + " " + views::to_string(item.source_box);
  return text;
}

/// "12 float over the ranks 0, 1 by ring in parts of 12", of a partial all-reduce
/// "the contributions in time of 12 float …".
std::string text_of(const ReductionWork& sum) {
  return (sum.partial ? "the contributions in time of " : "") + std::to_string(sum.elements) + ' ' +
         nn::name(sum.type) + " over the ranks " + list_of(sum.members) + " by " + to_string(sum.plan.algorithm) +
         " in parts of " + std::to_string(sum.plan.part_elements);
}

/// The values of a sum, for people: "conv1.w.gradient, conv1.b.gradient".
std::string values_of(const StepPlan& plan, const ReductionWork& sum) {
  std::string text;
  for (const BufferId b : sum.buffers)
    text += (text.empty() ? "" : ", ") + buffer_of(plan, b).name + " " + views::to_string(buffer_of(plan, b).box);
  return text;
}

}  // namespace

void check_communication(std::span<const StepPlan> plans) {
  std::map<int, Communication> all;
  for (const StepPlan& plan : plans) {
    int last = -1;
    for (const PlanNode& n : plan.nodes) {
      if (n.kind() == NodeKind::kernel) continue;
      if (n.communication <= last || n.communication >= plan.communications)
        refuse(plan, &n, "communication is not listed in the order of its numbers");
      last = n.communication;
      all[n.communication].emplace_back(&plan, &n);
    }
  }
  for (const auto& [number, nodes] : all) {
    const auto& first = nodes.front();
    for (const auto& other : nodes)
      if (other.second->work.index() != first.second->work.index() || other.second->layer != first.second->layer)
        refuse_pair(first, other, "another kind of communication than " + other.second->label);
    if (const auto* transfer = std::get_if<TransferWork>(&first.second->work)) {
      if (nodes.size() != plans.size())
        throw Found{{"only some ranks take part in the transfer of " + text_of(*first.first, *transfer),
                     first.second->label,
                     {first.first->rank}}};
      for (const auto& other : nodes) {
        const auto& theirs = std::get<TransferWork>(other.second->work);
        if (theirs.items.size() != transfer->items.size() || theirs.adjoint != transfer->adjoint ||
            theirs.name != transfer->name)
          refuse_pair(first, other, "ranks disagree on the transfer of " + text_of(*first.first, *transfer));
      }
      for (const auto& sender : nodes) check_messages(sender, std::get<TransferWork>(sender.second->work), nodes);
      continue;
    }
    for (const auto& [plan, node] : nodes) {
      const auto& mine = std::get<ReductionWork>(node->work);
      for (const int member : mine.members) {
        const auto theirs = std::ranges::find_if(nodes, [&](const auto& n) { return n.first->rank == member; });
        if (theirs == nodes.end())
          throw Found{{"a member does not take part in the sum of " + values_of(*plan, mine),
                       node->label,
                       {plan->rank, member}}};
        const auto& other = std::get<ReductionWork>(theirs->second->work);
        if (other.members != mine.members || other.elements != mine.elements || other.type != mine.type ||
            other.plan != mine.plan || other.segment != mine.segment || other.first != mine.first ||
            other.with_loss != mine.with_loss || other.partial != mine.partial)
          refuse_pair({plan, node}, *theirs,
                      "the members disagree on the sum of " + values_of(*plan, mine) + ": " + text_of(mine) + ", and " +
                          text_of(other));
      }
    }
  }
}

}  // namespace aloni::nn::detail
