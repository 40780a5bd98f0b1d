#include <aloni/model/detail/schedule_walk.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

namespace aloni::model::detail {

namespace {

using comm::Step;

struct WalkEvent {
  double time = 0;
  std::uint64_t order = 0;  ///< of equal times: that of their causes
  int rank = 0;
  std::uint32_t part = 0;
  int step = 0;
  bool arrives = false;  ///< a message for this receive; otherwise the step has ended

  friend bool operator>(const WalkEvent& a, const WalkEvent& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
};

}  // namespace

ScheduleWalk::ScheduleWalk(const comm::CollectiveSchedules& schedules, const MachineDescription& description,
                           int element_bytes)
    : parts_(schedules.parts),
      parts_at_once_(schedules.parts_at_once),
      unit_(element_bytes),
      nodes_(description.nodes),
      whole_(steps_of(schedules.whole)),
      last_(steps_of(schedules.last)) {
  if (nodes_.empty()) nodes_.resize(last_.size());
}

std::vector<ScheduleWalk::Steps> ScheduleWalk::steps_of(const std::vector<comm::Schedule>& schedules) {
  std::vector<Steps> all(schedules.size());
  std::map<std::pair<int, int>, std::vector<int>> sends, receives;  // by sender and receiver: their steps
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    const comm::Schedule& schedule = schedules[r];
    const int rank = static_cast<int>(r);
    Steps& steps = all[r];
    steps.schedule = &schedule;
    std::vector<std::vector<int>> dependents(schedule.steps.size());
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      const int number = static_cast<int>(s);
      for (const int d : schedule.dependencies_of(step)) dependents[static_cast<std::size_t>(d)].push_back(number);
      // A step without dependencies waits for the begin of its part, and a receive for its message.
      steps.waiting.push_back(std::max(1, step.num_dependencies) + (step.kind == Step::Kind::receive ? 1 : 0));
      if (step.kind == Step::Kind::send) sends[{rank, step.peer}].push_back(number);
      if (step.kind == Step::Kind::receive) receives[{step.peer, rank}].push_back(number);
    }
    for (const std::vector<int>& list : dependents) {
      steps.first_dependent.push_back(static_cast<int>(steps.dependents.size()));
      steps.dependents.insert(steps.dependents.end(), list.begin(), list.end());
    }
    steps.first_dependent.push_back(static_cast<int>(steps.dependents.size()));
    steps.partner.resize(schedule.steps.size(), -1);
  }
  for (const auto& [ranks, from] : sends) {
    const std::vector<int>& to = receives[ranks];
    for (std::size_t k = 0; k < from.size(); ++k) {
      all[static_cast<std::size_t>(ranks.first)].partner[static_cast<std::size_t>(from[k])] = to.at(k);
      all[static_cast<std::size_t>(ranks.second)].partner[static_cast<std::size_t>(to[k])] = from[k];
    }
  }
  return all;
}

class WalkState {
 public:
  WalkState(const ScheduleWalk& walk, const WalkRates& rates) : walk_(walk), rates_(rates), ranks_(walk.last_.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::uint32_t part = 0; part < walk.parts_; ++part) {
        const ScheduleWalk::Steps& steps = walk.steps(static_cast<int>(r), part);
        ranks_[r].parts.push_back({steps.waiting, steps.waiting.size()});
      }
    }
    const int nodes = ranks_.empty() ? 0 : *std::ranges::max_element(walk.nodes_) + 1;
    sends_until_.resize(static_cast<std::size_t>(nodes));
    receives_until_.resize(static_cast<std::size_t>(nodes));
  }

  double run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::uint32_t n = 0; n < walk_.parts_at_once_; ++n) begin_part(static_cast<int>(r));
    while (!events_.empty()) {
      const WalkEvent event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.arrives) {
        count_down(event.rank, event.part, event.step);
      } else {
        end_step(event);
      }
    }
    return now_;
  }

 private:
  struct Part {
    std::vector<int> waiting;
    std::size_t left = 0;
  };
  struct Rank {
    double free = 0;  ///< end of the work of its core
    std::uint32_t next_part = 0;
    std::vector<Part> parts = {};
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int node_of(int rank) const { return walk_.nodes_[static_cast<std::size_t>(rank)]; }

  void add(double time, WalkEvent event) {
    event.time = time;
    event.order = ++order_;
    events_.push(event);
  }

  void begin_part(int rank) {
    Rank& r = at(rank);
    if (r.next_part == walk_.parts_) return;
    const std::uint32_t part = r.next_part++;
    const comm::Schedule& schedule = *walk_.steps(rank, part).schedule;
    if (schedule.steps.empty()) return begin_part(rank);
    for (std::size_t s = 0; s < schedule.steps.size(); ++s)
      if (schedule.steps[s].num_dependencies == 0) count_down(rank, part, static_cast<int>(s));
  }

  void count_down(int rank, std::uint32_t part, int step) {
    if (--at(rank).parts[part].waiting[static_cast<std::size_t>(step)] == 0) run_step(rank, part, step);
  }

  void run_step(int rank, std::uint32_t part, int number) {
    const ScheduleWalk::Steps& steps = walk_.steps(rank, part);
    const Step& step = steps.schedule->steps[static_cast<std::size_t>(number)];
    const bool is_message = step.is_message(), same_node = is_message && node_of(rank) == node_of(step.peer);
    const LinkCosts& link = same_node ? rates_.within : rates_.between;
    const double bytes =
        walk_.unit_ * static_cast<double>(step.kind == Step::Kind::send ? step.from.count : step.to.count);
    double& free = at(rank).free;
    free = std::max(free, now_) + seconds_of(step, bytes, link, same_node, steps.schedule->exposed_to.size());
    const WalkEvent own{.rank = rank, .part = part, .step = number};
    const bool lent = is_message && same_node && rates_.shared_data;  // read in place
    if (step.kind != Step::Kind::send || !lent) add(free, own);
    if (!is_message) return;
    const WalkEvent other{.rank = step.peer, .part = part, .step = steps.partner[static_cast<std::size_t>(number)]};
    if (step.kind == Step::Kind::receive) {
      if (lent) add(free, other);
      return;
    }
    WalkEvent arrival = other;
    arrival.arrives = true;
    add(same_node ? free + link.latency : passed_ports(rank, step.peer, bytes, link), arrival);
  }

  double seconds_of(const Step& step, double bytes, const LinkCosts& link, bool same_node, std::size_t exposed) const {
    switch (step.kind) {
      case Step::Kind::send:
        return link.seconds_per_message;
      case Step::Kind::receive:
        return link.seconds_per_message + (same_node ? bytes * link.seconds_per_byte : 0);
      case Step::Kind::reduce:
        return bytes * rates_.combine;
      case Step::Kind::copy:
        return bytes * rates_.copy;
      case Step::Kind::combine:
        break;
    }
    return (static_cast<double>(exposed) - 1) * bytes * (rates_.combine + rates_.shared_copy);
  }

  /// A message that the core of `from` has posted has passed the ports of both nodes.
  double passed_ports(int from, int to, double bytes, const LinkCosts& link) {
    double& sends = sends_until_[static_cast<std::size_t>(node_of(from))];
    double& receives = receives_until_[static_cast<std::size_t>(node_of(to))];
    const double start = std::max(at(from).free, sends), seconds = bytes * link.seconds_per_byte;
    sends = start + seconds;
    receives = std::max(receives, start + link.latency) + seconds;
    return receives;
  }

  void end_step(const WalkEvent& event) {
    const ScheduleWalk::Steps& steps = walk_.steps(event.rank, event.part);
    const auto s = static_cast<std::size_t>(event.step);
    for (int i = steps.first_dependent[s]; i < steps.first_dependent[s + 1]; ++i)
      count_down(event.rank, event.part, steps.dependents[static_cast<std::size_t>(i)]);
    if (--at(event.rank).parts[event.part].left == 0) begin_part(event.rank);
  }

  const ScheduleWalk& walk_;
  const WalkRates& rates_;
  std::vector<Rank> ranks_;
  std::vector<double> sends_until_, receives_until_;  ///< ports of the nodes
  std::priority_queue<WalkEvent, std::vector<WalkEvent>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
};

double ScheduleWalk::seconds(const WalkRates& rates) const { return WalkState(*this, rates).run(); }

}  // namespace aloni::model::detail
