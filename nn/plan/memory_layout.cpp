#include <aloni/nn/plan/memory_layout.hpp>

#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <utility>

namespace aloni::nn {

namespace {

Index round_up(Index bytes) {
  return (bytes + MemoryLayout::alignment - 1) / MemoryLayout::alignment * MemoryLayout::alignment;
}

/// First and last position that touch a buffer; first > last: none.
struct FirstAndLast {
  int first = std::numeric_limits<int>::max(), last = -1;

  void add(int position) {
    first = std::min(first, position);
    last = std::max(last, position);
  }
  bool unused() const { return first > last; }
};

/// In the list of nodes, and in the actions of the schedule.
struct Lifetime {
  FirstAndLast nodes, actions;

  void add(int node, int action) {
    nodes.add(node);
    actions.add(action);
  }
  static Lifetime always() {
    constexpr int last = std::numeric_limits<int>::max();
    return {{-1, last}, {-1, last}};
  }
  bool unused() const { return nodes.unused(); }
  bool ends_before(const Lifetime& other) const {
    return nodes.last < other.nodes.first && actions.last < other.actions.first;
  }
};

/// Of root buffers: one for each range of nodes in which the contents are needed.
using Lifetimes = std::vector<std::vector<Lifetime>>;

Lifetimes lifetimes_of(const StepPlan& plan, const MachineDescription& machine) {
  Lifetimes lifetimes(plan.buffers.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) lifetimes[b].resize(plan.buffers[b].unused.size() + 1);
  const std::vector<StepAction> actions = schedule(graph_of(plan), {.kernels_ahead = machine.kernels_ahead()});
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) {
    const int n = actions[static_cast<std::size_t>(a)].node;
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
    for (const auto* regions : {&node.reads, &node.writes}) {
      for (const PlanRegion& r : *regions) {
        const auto root = static_cast<std::size_t>(plan.root(r.buffer));
        const auto ended = std::ranges::count_if(plan.buffers[root].unused, [&](NodeRange u) { return u.last < n; });
        Lifetime& life = lifetimes[root][static_cast<std::size_t>(ended)];
        life.add(n, a);
      }
    }
  }
  // A buffer may be kept behind its last access (lifetimes.hpp).
  std::vector<int> action_of(plan.nodes.size());
  for (int a = 0; a < static_cast<int>(actions.size()); ++a)
    action_of[static_cast<std::size_t>(actions[static_cast<std::size_t>(a)].node)] = a;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    for (std::size_t u = 0; u < plan.buffers[b].unused.size(); ++u) {
      const int last = plan.buffers[b].unused[u].first - 1;
      lifetimes[b][u].add(last, action_of[static_cast<std::size_t>(last)]);
    }
  }
  return lifetimes;
}

bool shares_memory(const StepPlan& plan, const MachineDescription& machine) {
  for (int r = 0; r < plan.ranks; ++r)
    if (r != plan.rank && machine.share_memory(plan.rank, r)) return true;
  return false;
}

/// Of one plan of the layout.
struct LifetimeInPlan {
  std::size_t plan = 0;
  Lifetime life;
};

struct Candidate {
  std::string name;
  MemoryLayout::Place place;
  std::vector<LifetimeInPlan> lifetimes = {};  ///< without unused ones

  bool meets(const Candidate& other) const {
    for (const LifetimeInPlan& mine : lifetimes)
      for (const LifetimeInPlan& its : other.lifetimes)
        if (mine.plan == its.plan && !mine.life.ends_before(its.life) && !its.life.ends_before(mine.life)) return true;
    return false;
  }
};

/// The candidates that have a place in one memory, by offset.
class Placed {
 public:
  explicit Placed(Index capacity = std::numeric_limits<Index>::max()) : capacity_(capacity) {}

  /// Places a candidate at the start of the smallest gap between those it meets, else at the end of the last one.
  /// Returns whether there is room.
  bool add(Candidate& wanted) {
    const Index bytes = round_up(wanted.place.bytes);
    Index end = 0, best = -1, smallest = std::numeric_limits<Index>::max();
    for (const Candidate* c : by_offset_) {
      const Index from = c->place.offset, to = round_up(from + c->place.bytes);
      if (to <= end || !wanted.meets(*c)) continue;  // behind `end` it takes nothing
      if (const Index gap = from - end; gap >= bytes && gap < smallest) {
        best = end;
        smallest = gap;
      }
      end = to;
    }
    const Index offset = best >= 0 ? best : end;
    if (offset > capacity_ - bytes) return false;
    wanted.place.offset = offset;
    add_at_its_offset(wanted);
    return true;
  }
  void add_at_its_offset(const Candidate& candidate) {
    by_offset_.insert(std::ranges::upper_bound(by_offset_, candidate.place.offset, {},
                                               [](const Candidate* c) { return c->place.offset; }),
                      &candidate);
  }

 private:
  Index capacity_;
  std::vector<const Candidate*> by_offset_;
};

/// The memory of the gradients of one segment.
struct GradientPlaces {
  bool shared = true;
  Placed placed;
};

/// The gradients of parameters, by name, in the places that Parameters gives them.
std::map<std::string, Candidate> gradient_candidates(const std::vector<const StepPlan*>& plans,
                                                     const std::vector<Lifetimes>& lifetimes) {
  std::map<std::string, Candidate> by_name;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const StepPlan& plan = *plans[p];
    if (!lends_gradient_memory(plan)) continue;
    for (std::size_t s = 0; s < plan.gradient_memory.size(); ++s) {
      const GradientMemory& memory = plan.gradient_memory[s];
      for (const GradientMemory::Tensor& tensor : memory.tensors) {
        const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(tensor.gradient)];
        Candidate& c = by_name[buffer.name];
        c.name = buffer.name;
        // Sums and updates of a segment also visit the one element of an empty tensor, so it must stay zero.
        c.place = {.memory = memory.shared ? MemoryKind::shared : MemoryKind::own,
                   .offset = tensor.offset,
                   .bytes = std::max(buffer.bytes(), bytes_of(buffer.type)),
                   .segment = static_cast<int>(s)};
        const Lifetime& life = lifetimes[p][static_cast<std::size_t>(tensor.gradient)].front();
        c.lifetimes.push_back({p, buffer.bytes() == 0 || life.unused() ? Lifetime::always() : life});
      }
    }
  }
  return by_name;
}

/// Of all plans. @pre they are plans of one rank with the same parameters
std::vector<GradientPlaces> gradient_places(const std::vector<const StepPlan*>& plans,
                                            const std::map<std::string, Candidate>& gradients) {
  std::vector<GradientPlaces> segments;
  for (const StepPlan* plan : plans)
    if (lends_gradient_memory(*plan) && segments.empty())
      for (const GradientMemory& memory : plan->gradient_memory)
        segments.push_back({memory.shared, Placed(memory.bytes)});
  for (const auto& [name, candidate] : gradients)
    segments[static_cast<std::size_t>(candidate.place.segment)].placed.add_at_its_offset(candidate);
  return segments;
}

}  // namespace

MemoryKind memory_kind(const PlanBuffer& buffer, bool shares) {
  if (buffer.on_host()) return MemoryKind::host;
  return buffer.shared && shares ? MemoryKind::shared : MemoryKind::own;
}

bool is_learned(const PlanBuffer& buffer) {
  return buffer.role == BufferRole::parameters || buffer.role == BufferRole::parameter_gradients ||
         buffer.role == BufferRole::gradient_sums || buffer.role == BufferRole::optimiser;
}

bool has_own_memory(const PlanBuffer& buffer) {
  return buffer.persistent || buffer.by_kernels || buffer.read_beyond || is_learned(buffer);
}

bool lends_gradient_memory(const StepPlan& plan) { return plan.update && !plan.gradient_memory.empty(); }

MemoryLayout lay_out_memory(const std::vector<const StepPlan*>& plans, const MachineDescription& machine) {
  std::map<std::string, Candidate> by_name;
  std::set<std::string> separate;
  std::vector<Lifetimes> lifetimes;
  for (const StepPlan* plan : plans) lifetimes.push_back(lifetimes_of(*plan, machine));
  for (const StepPlan* plan : plans)
    for (const PlanBuffer& buffer : plan->buffers)
      if (has_own_memory(buffer)) separate.insert(buffer.name);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const StepPlan& plan = *plans[p];
    const bool shares = shares_memory(plan, machine);
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan.buffers[b];
      if (buffer.alias != no_buffer || separate.contains(buffer.name)) continue;
      Candidate& c = by_name[buffer.name];
      c.name = buffer.name;
      for (const Lifetime& life : lifetimes[p][b])
        if (!life.unused()) c.lifetimes.push_back({p, life});
      c.place.bytes = std::max(c.place.bytes, buffer.bytes());
      if (const MemoryKind kind = memory_kind(buffer, shares); kind != MemoryKind::own) c.place.memory = kind;
    }
  }
  std::vector<Candidate*> order;
  for (auto& [name, candidate] : by_name) order.push_back(&candidate);
  std::ranges::stable_sort(order, std::greater{}, [](const Candidate* c) { return c->place.bytes; });
  MemoryLayout layout;
  const std::map<std::string, Candidate> gradients = gradient_candidates(plans, lifetimes);
  for (const auto& [name, candidate] : gradients) layout.places.emplace(name, candidate.place);
  std::vector<GradientPlaces> segments = gradient_places(plans, gradients);
  std::map<MemoryKind, Placed> placed;
  const auto place_in_gradients = [&](Candidate& c) {
    for (std::size_t s = 0; s < segments.size(); ++s) {
      if ((c.place.memory == MemoryKind::shared && !segments[s].shared) || !segments[s].placed.add(c)) continue;
      c.place.segment = static_cast<int>(s);
      return true;
    }
    return false;
  };
  for (Candidate* c : order) {
    if (c->place.memory == MemoryKind::host || !place_in_gradients(*c)) {
      placed[c->place.memory].add(*c);
      Index& all = layout.bytes_of(c->place.memory);
      all = std::max(all, c->place.offset + round_up(c->place.bytes));
    }
    layout.places.emplace(c->name, c->place);
  }
  return layout;
}

namespace {

/// The number of a memory: of each kind, then that of each segment of gradients.
int memory_of(const MemoryLayout::Place& place) {
  return place.segment >= 0 ? static_cast<int>(MemoryKind::host) + 1 + place.segment : static_cast<int>(place.memory);
}

/// The buffer to which each byte of a layout belongs: the last one that was written.
class Owners {
 public:
  Owners(const StepPlan& plan, const MemoryLayout& layout) : plan_(plan), layout_(layout) {}

  void take(BufferId root) {
    const MemoryLayout::Place* const place = place_of(root);
    if (place == nullptr) return;
    const auto first = split(memory_of(*place), place->offset);
    const auto end = split(memory_of(*place), place->offset + place->bytes);
    owners_.erase(std::next(first), end);
    first->second = root;
  }
  /// Another buffer that has a byte of this one; no_buffer as the value: not written so far.
  std::optional<BufferId> other(BufferId root) {
    const MemoryLayout::Place* const place = place_of(root);
    if (place == nullptr) return std::nullopt;
    const auto end = split(memory_of(*place), place->offset + place->bytes);
    for (auto range = split(memory_of(*place), place->offset); range != end; ++range)
      if (range->second != root) return range->second;
    return std::nullopt;
  }

 private:
  using Ranges = std::map<std::pair<int, Index>, BufferId>;  // by memory and first byte

  const MemoryLayout::Place* place_of(BufferId root) const {
    const auto found = layout_.places.find(plan_.buffers[static_cast<std::size_t>(root)].name);
    return found == layout_.places.end() || found->second.bytes == 0 ? nullptr : &found->second;
  }
  Ranges::iterator split(int memory, Index offset) {
    owners_.emplace(std::pair{memory, Index{0}}, no_buffer);
    const auto next = owners_.upper_bound({memory, offset});
    return owners_.emplace(std::pair{memory, offset}, std::prev(next)->second).first;
  }

  const StepPlan& plan_;
  const MemoryLayout& layout_;
  Ranges owners_;
};

/// graph_of(plan) with the places of the layout as addresses.
StepGraph graph_with_places(const StepPlan& plan, const MemoryLayout& layout) {
  StepGraph graph = graph_of(plan);
  for (StepNode& node : graph.nodes) {
    for (Access& access : node.accesses) {
      const auto* const root = static_cast<const PlanBuffer*>(access.memory);
      const auto place = layout.places.find(root->name);
      if (place == layout.places.end()) continue;
      constexpr int address_bits = 48;
      access.address = (static_cast<std::uintptr_t>(memory_of(place->second)) << address_bits) +
                       static_cast<std::uintptr_t>(place->second.offset);
      access.bytes = static_cast<std::size_t>(place->second.bytes);
    }
  }
  return graph;
}

}  // namespace

std::optional<std::string> find_overwritten(const StepPlan& plan, const MemoryLayout& layout,
                                            const ScheduleOptions& order) {
  Owners owners(plan, layout);
  const auto name_of = [&](BufferId b) { return plan.buffers[static_cast<std::size_t>(b)].name; };
  for (const StepAction& action : schedule(graph_with_places(plan, layout), order)) {
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(action.node)];
    for (const PlanRegion& r : node.reads) {
      const BufferId root = plan.root(r.buffer);
      if (const auto other = owners.other(root))
        return node.label + " reads " + name_of(root) + ", which " +
               (*other == no_buffer ? "was not written" : name_of(*other) + " overwrote");
    }
    for (const PlanRegion& r : node.writes) {
      const BufferId root = plan.root(r.buffer);
      // A transfer has its destination for itself from its start to its finish.
      if (const auto other = owners.other(root); other && *other != no_buffer && action.kind == StepActionKind::finish)
        return node.label + " fills " + name_of(root) + ", which " + name_of(*other) + " overwrote";
      owners.take(root);
    }
  }
  // No node writes the element of an empty tensor, and sums need its zero.
  for (const GradientMemory& segment : plan.gradient_memory) {
    for (const GradientMemory::Tensor& tensor : segment.tensors) {
      if (plan.buffers[static_cast<std::size_t>(tensor.gradient)].bytes() > 0) continue;
      if (const auto other = owners.other(tensor.gradient); other && *other != no_buffer)
        return name_of(*other) + " overwrote the zero of " + name_of(tensor.gradient);
    }
  }
  return std::nullopt;
}

}  // namespace aloni::nn
