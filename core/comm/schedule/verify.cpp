#include <aloni/core/comm/schedule/verify.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <numeric>
#include <queue>
#include <string>
#include <string_view>

namespace aloni::comm {

namespace {

constexpr std::string_view verify_operation = "aloni::comm::verify";

std::string name(const Step& s) {
  switch (s.kind) {
    case Step::Kind::send:
      return "send of " + std::to_string(s.from.count) + " elements to rank " + std::to_string(s.peer);
    case Step::Kind::receive:
      return "receive of " + std::to_string(s.to.count) + " elements from rank " + std::to_string(s.peer);
    case Step::Kind::reduce:
      return "reduction of " + std::to_string(s.to.count) + " elements";
    case Step::Kind::copy:
      return "copy of " + std::to_string(s.to.count) + " elements";
    case Step::Kind::combine:
      return "combination of " + std::to_string(s.to.count) + " elements of several ranks";
  }
  return "unknown step";
}

class Proof {
 public:
  Proof(std::span<const Schedule> schedules, const Goal& goal) : schedules_(schedules), goal_(goal) {
    if (schedules.size() != goal.ranks.size()) {
      throw InvalidArgument(std::string(verify_operation), "schedules", std::to_string(schedules.size()),
                            "one for each of the " + std::to_string(goal.ranks.size()) + " ranks of the goal");
    }
  }

  Cost run() {
    check_form();
    match();
    check_races();
    check_races_between_ranks();
    execute();
    check_goal();
    return cost_;
  }

 private:
  struct Message {
    int sender = -1, send = -1, receiver = -1, receive = -1;
    std::vector<Content> contents;
    std::uint64_t knows = 0;
  };
  /// State of one step during execute().
  struct State {
    int missing = 0;  // dependencies that are not complete
    bool started = false, complete = false;
    int message = -1;
    int rounds = 0;           // messages on the longest chain that ends here
    std::uint64_t knows = 0;  // bit r: rank r must have started before this step ends
  };

  [[noreturn]] void fail(std::size_t rank, int step, const std::string& what, const std::string& expected) const {
    const auto& s = schedules_[rank].steps[static_cast<std::size_t>(step)];
    throw InvalidArgument(std::string(verify_operation),
                          "rank " + std::to_string(rank) + ", step " + std::to_string(step) + " (" + name(s) + ")",
                          what, expected);
  }

  Index size_of(std::size_t rank, Buffer buffer) const {
    const Schedule& s = schedules_[rank];
    return buffer == Buffer::input ? s.input : buffer == Buffer::output ? s.output : s.scratch;
  }

  void check_region(std::size_t rank, int step, const Region& r) const {
    const Index size = size_of(rank, r.buffer);
    if (r.offset < 0 || r.count < 0 || r.offset > size - r.count) {
      fail(rank, step, "elements " + std::to_string(r.offset) + " to " + std::to_string(r.offset + r.count),
           "elements of a buffer of " + std::to_string(size) + " elements");
    }
  }

  void check_exposed(std::size_t rank, int step) const {
    const Schedule& own = schedules_[rank];
    const Step& s = own.steps[static_cast<std::size_t>(step)];
    if (std::ranges::count(own.exposed_to, own.rank) != 1)
      fail(rank, step, "exposes memory to a list without this rank", "this rank once in the list");
    for (const int r : own.exposed_to) {
      if (r < 0 || r >= static_cast<int>(schedules_.size()))
        fail(rank, step, "rank " + std::to_string(r), "one of " + std::to_string(schedules_.size()) + " ranks");
      const Schedule& theirs = schedules_[static_cast<std::size_t>(r)];
      if (theirs.exposed_to != own.exposed_to)
        fail(rank, step, "rank " + std::to_string(r) + " exposes memory to other ranks", "the same ranks in one order");
      if (s.place < 0 || s.place > theirs.exposed.count - s.to.count) {
        fail(rank, step,
             "elements " + std::to_string(s.place) + " to " + std::to_string(s.place + s.to.count) + " of rank " +
                 std::to_string(r),
             "elements of the " + std::to_string(theirs.exposed.count) + " that it exposes");
      }
      if (theirs.exposed.buffer == Buffer::input)
        fail(rank, step, "writes the input of rank " + std::to_string(r), "the input is read only");
    }
  }

  void check_form() const {
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      const Schedule& schedule = schedules_[r];
      const auto& goal = goal_.ranks[r];
      if (schedule.rank != static_cast<int>(r)) {
        throw InvalidArgument(std::string(verify_operation), "schedules[" + std::to_string(r) + "].rank",
                              std::to_string(schedule.rank), "its index in the list");
      }
      if (schedule.input != static_cast<Index>(goal.input.size()) ||
          schedule.output != static_cast<Index>(goal.output.size())) {
        throw InvalidArgument(
            std::string(verify_operation), "buffers of rank " + std::to_string(r),
            "input " + std::to_string(schedule.input) + ", output " + std::to_string(schedule.output),
            "the goal's " + std::to_string(goal.input.size()) + " and " + std::to_string(goal.output.size()));
      }
      for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
        const Step& s = schedule.steps[static_cast<std::size_t>(i)];
        if (s.kind != Step::Kind::receive) check_region(r, i, s.from);
        if (s.kind != Step::Kind::send) check_region(r, i, s.to);
        if (s.kind == Step::Kind::combine) check_exposed(r, i);
        if (s.is_message() &&
            (s.peer < 0 || s.peer >= static_cast<int>(schedules_.size()) || s.peer == schedule.rank)) {
          fail(r, i, "rank " + std::to_string(s.peer), "another rank of the " + std::to_string(schedules_.size()));
        }
        if ((s.kind == Step::Kind::reduce || s.kind == Step::Kind::copy) && s.from.count != s.to.count)
          fail(r, i, "reads " + std::to_string(s.from.count) + " elements", "as many elements as it writes");
        if (s.kind != Step::Kind::send && s.to.buffer == Buffer::input)
          fail(r, i, "writes the input", "the input is read only");
        for (int d : schedule.dependencies_of(s)) {
          if (d < 0 || d >= i) fail(r, i, "depends on step " + std::to_string(d), "an earlier step");
        }
      }
    }
  }

  void match() {
    const std::size_t p = schedules_.size();
    states_.resize(p);
    std::vector<std::vector<int>> sends(p * p), receives(p * p);  // [from * p + to]
    for (std::size_t r = 0; r < p; ++r) {
      states_[r].resize(schedules_[r].steps.size());
      for (std::size_t i = 0; i < schedules_[r].steps.size(); ++i) {
        const Step& s = schedules_[r].steps[i];
        states_[r][i].missing = s.num_dependencies;
        if (s.kind == Step::Kind::send) sends[r * p + static_cast<std::size_t>(s.peer)].push_back(static_cast<int>(i));
        if (s.kind == Step::Kind::receive)
          receives[static_cast<std::size_t>(s.peer) * p + r].push_back(static_cast<int>(i));
      }
    }
    for (std::size_t from = 0; from < p; ++from) {
      for (std::size_t to = 0; to < p; ++to) {
        const auto& out = sends[from * p + to];
        const auto& in = receives[from * p + to];
        for (std::size_t k = 0; k < std::max(out.size(), in.size()); ++k) {
          if (k >= in.size()) fail(from, out[k], "message " + std::to_string(k), "a receive for it on the other rank");
          if (k >= out.size()) fail(to, in[k], "message " + std::to_string(k), "a send for it on the other rank");
          const Index sent = schedules_[from].steps[static_cast<std::size_t>(out[k])].from.count;
          if (sent != schedules_[to].steps[static_cast<std::size_t>(in[k])].to.count) {
            fail(to, in[k], "message " + std::to_string(k) + " of " + std::to_string(sent) + " elements",
                 "equal sizes");
          }
          states_[from][static_cast<std::size_t>(out[k])].message = static_cast<int>(messages_.size());
          states_[to][static_cast<std::size_t>(in[k])].message = static_cast<int>(messages_.size());
          messages_.push_back({static_cast<int>(from), out[k], static_cast<int>(to), in[k], {}, 0});
        }
      }
    }
  }

  static bool overlap(const Region& a, const Region& b) {
    return a.count > 0 && b.count > 0 && a.buffer == b.buffer && a.offset < b.offset + b.count &&
           b.offset < a.offset + a.count;
  }
  /// The regions that a step reads and writes. Independent of the rule in the builder.
  struct Touched {
    Region read[2], written;

    explicit Touched(const Step& s) {
      if (s.kind != Step::Kind::receive) read[0] = s.from;
      if (s.kind == Step::Kind::reduce || s.kind == Step::Kind::combine) read[1] = s.to;
      if (s.kind != Step::Kind::send) written = s.to;
    }
    bool races_with(const Touched& o) const {
      return overlap(written, o.written) || overlap(written, o.read[0]) || overlap(written, o.read[1]) ||
             overlap(read[0], o.written) || overlap(read[1], o.written);
    }
  };

  void check_races() const {
    using Word = std::uint64_t;
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      const auto& steps = schedules_[r].steps;
      const std::size_t words = (steps.size() + 63) / 64;
      std::vector<Word> before(steps.size() * words);  // bit j of row i: step j is complete before step i starts
      std::vector<Touched> touched(steps.begin(), steps.end());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        Word* const row = &before[i * words];
        for (int d : schedules_[r].dependencies_of(steps[i])) {
          const auto earlier = static_cast<std::size_t>(d);
          row[earlier / 64] |= Word{1} << earlier % 64;
          for (std::size_t w = 0; w < words; ++w) row[w] |= before[earlier * words + w];
        }
        for (std::size_t j = 0; j < i; ++j) {
          if (row[j / 64] >> j % 64 & 1 || !touched[i].races_with(touched[j])) continue;
          fail(r, static_cast<int>(i), "may run before step " + std::to_string(j) + " (" + name(steps[j]) + ")",
               "a dependency on it, because they touch the same elements");
        }
      }
    }
  }

  /// The region that combine step `c` of schedule `own` reads and writes on rank r.
  Region combined_on(const Schedule& own, const Step& c, int r) const {
    return r == own.rank ? c.to : schedules_[static_cast<std::size_t>(r)].exposed.part(c.place, c.to.count);
  }

  /// Combine steps touch the memory of other ranks. Messages must order all steps that touch the same elements there.
  void check_races_between_ranks() const {
    using Word = std::uint64_t;
    struct Access {
      std::size_t rank;  // rank of the step
      int step;
      Touched touched;
    };
    std::vector<std::vector<Access>> accesses(schedules_.size());  // indexed by the rank that owns the memory
    std::vector<std::size_t> first(schedules_.size() + 1);
    bool any = false;
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      const auto& steps = schedules_[r].steps;
      first[r + 1] = first[r] + steps.size();
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].from.count > 0 || steps[i].to.count > 0)
          accesses[r].push_back({r, static_cast<int>(i), Touched(steps[i])});
        if (steps[i].kind != Step::Kind::combine) continue;
        any = true;
        for (const int other : schedules_[r].exposed_to) {
          if (other == static_cast<int>(r)) continue;
          Step there = steps[i];
          there.to = combined_on(schedules_[r], steps[i], other);
          accesses[static_cast<std::size_t>(other)].push_back({r, static_cast<int>(i), Touched(there)});
        }
      }
    }
    if (!any) return;

    // Bit j of row i: for any timing, step j is complete before step i starts (for a receive: before it is complete).
    const std::size_t n = first.back(), words = (n + 63) / 64;
    std::vector<Word> before(n * words);
    const auto node = [&](std::size_t rank, int step) { return first[rank] + static_cast<std::size_t>(step); };
    std::vector<int> missing(n);
    std::vector<std::vector<std::size_t>> after(n);
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      for (std::size_t i = 0; i < schedules_[r].steps.size(); ++i) {
        for (const int d : schedules_[r].dependencies_of(schedules_[r].steps[i])) {
          after[node(r, d)].push_back(first[r] + i);
          ++missing[first[r] + i];
        }
      }
    }
    for (const Message& m : messages_) {
      const std::size_t receive = node(static_cast<std::size_t>(m.receiver), m.receive);
      after[node(static_cast<std::size_t>(m.sender), m.send)].push_back(receive);
      ++missing[receive];
    }
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < n; ++i) {
      if (missing[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const std::size_t i = ready.back();
      ready.pop_back();
      for (const std::size_t later : after[i]) {
        Word* const row = &before[later * words];
        for (std::size_t w = 0; w < words; ++w) row[w] |= before[i * words + w];
        row[i / 64] |= Word{1} << i % 64;
        if (--missing[later] == 0) ready.push_back(later);
      }
    }
    const auto ordered = [&](std::size_t a, std::size_t b) {
      return (before[b * words + a / 64] >> a % 64 & 1) || (before[a * words + b / 64] >> b % 64 & 1);
    };
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      for (const Access& a : accesses[r]) {
        if (a.rank == r) continue;
        for (const Access& b : accesses[r]) {
          if ((a.rank == b.rank && a.step == b.step) || !a.touched.races_with(b.touched) ||
              ordered(node(a.rank, a.step), node(b.rank, b.step)))
            continue;
          fail(a.rank, a.step,
               "may run at the same time as step " + std::to_string(b.step) + " of rank " + std::to_string(b.rank) +
                   " (" + name(schedules_[b.rank].steps[static_cast<std::size_t>(b.step)]) + ")",
               "messages that order both steps, because they touch the same elements of rank " + std::to_string(r));
        }
      }
    }
  }

  std::vector<Content>& memory(std::size_t rank, Buffer buffer) {
    return memory_[rank][static_cast<std::size_t>(buffer)];
  }

  /// Contents of region `r` of rank `owner`, read by a step of `rank`.
  std::vector<Content> read_on(std::size_t owner, const Region& r, std::size_t rank, int step) {
    const auto first = memory(owner, r.buffer).begin() + r.offset;
    std::vector<Content> v(first, first + r.count);
    for (const Content& c : v) {
      if (c.element == Content::undefined)
        fail(rank, step, "reads an element without a value", "elements that have been written");
    }
    return v;
  }
  std::vector<Content> read(std::size_t rank, int step, const Region& r) { return read_on(rank, r, rank, step); }

  /// Adds the contributions of `others` to `values`.
  void unite(std::vector<Content>& values, const std::vector<Content>& others, std::size_t rank, int step) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].element != others[i].element) {
        fail(rank, step, "elements " + std::to_string(values[i].element) + " and " + std::to_string(others[i].element),
             "the same element of several ranks");
      }
      if (values[i].ranks & others[i].ranks) {
        fail(rank, step, "adds element " + std::to_string(values[i].element) + " of a rank twice",
             "each contribution once");
      }
      values[i].ranks |= others[i].ranks;
    }
  }

  void write(std::size_t rank, const Region& r, const std::vector<Content>& v) {
    std::ranges::copy(v, memory(rank, r.buffer).begin() + r.offset);
  }

  void start(std::size_t rank, int step) {
    const Step& s = schedules_[rank].steps[static_cast<std::size_t>(step)];
    State& state = states_[rank][static_cast<std::size_t>(step)];
    state.started = true;
    state.knows |= std::uint64_t{1} << rank;
    for (int d : schedules_[rank].dependencies_of(s)) {
      const State& earlier = states_[rank][static_cast<std::size_t>(d)];
      state.rounds = std::max(state.rounds, earlier.rounds);
      state.knows |= earlier.knows;
    }
    if (s.kind == Step::Kind::combine) {
      const Schedule& own = schedules_[rank];
      std::vector<Content> values;
      for (const int r : own.exposed_to) {
        const std::vector<Content> operand = read_on(static_cast<std::size_t>(r), combined_on(own, s, r), rank, step);
        if (values.empty()) {
          values = operand;
        } else {
          unite(values, operand, rank, step);
        }
      }
      for (const int r : own.exposed_to) write(static_cast<std::size_t>(r), combined_on(own, s, r), values);
      complete(rank, step);
      return;
    }
    if (!s.is_message()) {
      std::vector<Content> values = read(rank, step, s.from);
      if (s.kind == Step::Kind::reduce) unite(values, read(rank, step, s.to), rank, step);
      write(rank, s.to, values);
      complete(rank, step);
      return;
    }
    Message& m = messages_[static_cast<std::size_t>(state.message)];
    if (s.kind == Step::Kind::send) {
      m.contents = read(rank, step, s.from);
      m.knows = state.knows;
    }
    const State& sender = states_[static_cast<std::size_t>(m.sender)][static_cast<std::size_t>(m.send)];
    State& receiver = states_[static_cast<std::size_t>(m.receiver)][static_cast<std::size_t>(m.receive)];
    if (!sender.started || !receiver.started) return;
    receiver.rounds = std::max(receiver.rounds, sender.rounds) + 1;
    receiver.knows |= m.knows;
    write(static_cast<std::size_t>(m.receiver),
          schedules_[static_cast<std::size_t>(m.receiver)].steps[static_cast<std::size_t>(m.receive)].to, m.contents);
    m.contents = {};
    complete(static_cast<std::size_t>(m.sender), m.send);
    complete(static_cast<std::size_t>(m.receiver), m.receive);
  }

  void complete(std::size_t rank, int step) {
    states_[rank][static_cast<std::size_t>(step)].complete = true;
    for (int later : dependents_[rank][static_cast<std::size_t>(step)]) {
      if (--states_[rank][static_cast<std::size_t>(later)].missing == 0) ready_.push({rank, later});
    }
  }

  /// Runs all steps in one order that respects the dependencies. All such orders have the same result, because no two
  /// steps race.
  void execute() {
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      const Schedule& schedule = schedules_[r];
      memory_.push_back({goal_.ranks[r].input, goal_.ranks[r].output,
                         std::vector<Content>(static_cast<std::size_t>(schedule.scratch))});
      auto& dependents = dependents_.emplace_back(schedule.steps.size());
      for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
        for (int d : schedule.dependencies_of(schedule.steps[i]))
          dependents[static_cast<std::size_t>(d)].push_back(static_cast<int>(i));
        if (schedule.steps[i].num_dependencies == 0) ready_.push({r, static_cast<int>(i)});
      }
      cost_.elements_sent.push_back(schedule.elements_sent());
      cost_.messages_sent.push_back(schedule.messages_sent());
    }
    while (!ready_.empty()) {
      const auto [rank, step] = ready_.front();
      ready_.pop();
      start(rank, step);
    }
    for (std::size_t r = 0; r < states_.size(); ++r) {
      for (std::size_t i = 0; i < states_[r].size(); ++i) {
        if (!states_[r][i].complete) fail(r, static_cast<int>(i), "never completes", "no deadlock");
        cost_.rounds = std::max(cost_.rounds, states_[r][i].rounds);
      }
    }
  }

  void check_goal() const {
    for (std::size_t r = 0; r < goal_.ranks.size(); ++r) {
      const auto& output = memory_[r][static_cast<std::size_t>(Buffer::output)];
      const auto& after = goal_.ranks[r].after;
      for (std::size_t i = 0; i < after.size(); ++i) {
        if (after[i].element == Content::undefined || after[i] == output[i]) continue;
        throw InvalidArgument(std::string(verify_operation),
                              "output[" + std::to_string(i) + "] of rank " + std::to_string(r), describe(output[i]),
                              describe(after[i]));
      }
      if (!goal_.barrier) continue;
      std::uint64_t knows = std::uint64_t{1} << r;
      for (const State& s : states_[r]) knows |= s.knows;
      for (std::size_t other = 0; other < goal_.ranks.size(); ++other) {
        if (knows >> other & 1) continue;
        throw InvalidArgument(std::string(verify_operation), "barrier of rank " + std::to_string(r),
                              "may end before rank " + std::to_string(other) + " has begun", "a wait for all ranks");
      }
    }
  }

  static std::string describe(const Content& c) {
    if (c.element == Content::undefined) return "nothing";
    std::string text = "element " + std::to_string(c.element) + " of ranks {";
    bool first = true;
    for (int r = 0; r < 64; ++r) {
      if (!(c.ranks >> r & 1)) continue;
      text += (first ? "" : ", ") + std::to_string(r);
      first = false;
    }
    return text + "}";
  }

  std::span<const Schedule> schedules_;
  const Goal& goal_;
  std::vector<std::vector<State>> states_;
  std::vector<Message> messages_;
  std::vector<std::vector<std::vector<int>>> dependents_;
  std::vector<std::vector<std::vector<Content>>> memory_;
  struct Ready {
    std::size_t rank;
    int step;
  };
  std::queue<Ready> ready_;
  Cost cost_;
};

}  // namespace

Index Cost::all_elements() const { return std::accumulate(elements_sent.begin(), elements_sent.end(), Index{0}); }
int Cost::all_messages() const { return std::accumulate(messages_sent.begin(), messages_sent.end(), 0); }
Index Cost::most_elements() const { return elements_sent.empty() ? 0 : std::ranges::max(elements_sent); }
int Cost::most_messages() const { return messages_sent.empty() ? 0 : std::ranges::max(messages_sent); }

Cost verify(std::span<const Schedule> schedules, const Goal& goal) { return Proof(schedules, goal).run(); }

}  // namespace aloni::comm
