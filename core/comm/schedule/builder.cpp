#include <aloni/core/comm/schedule/builder.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace aloni::comm {

namespace {

bool overlap(const Region& a, const Region& b) {
  return a.count > 0 && b.count > 0 && a.buffer == b.buffer && a.offset < b.offset + b.count &&
         b.offset < a.offset + a.count;
}

bool reads(const Step& s, const Region& r) {
  const bool reads_target = s.kind == Step::Kind::reduce || s.kind == Step::Kind::combine;
  return (s.kind != Step::Kind::receive && overlap(s.from, r)) || (reads_target && overlap(s.to, r));
}
bool writes(const Step& s, const Region& r) { return s.kind != Step::Kind::send && overlap(s.to, r); }

/// Whether both steps touch a common element and one of them writes it.
bool conflict(const Step& a, const Step& b) {
  if (a.kind != Step::Kind::send && (reads(b, a.to) || writes(b, a.to))) return true;
  return b.kind != Step::Kind::send && reads(a, b.to);
}

std::string text(const Region& r) {
  constexpr const char* names[] = {"input", "output", "scratch"};
  return std::string(names[static_cast<int>(r.buffer)]) + "[" + std::to_string(r.offset) + ", " +
         std::to_string(r.offset + r.count) + ")";
}

}  // namespace

Region blocks_of(Region whole, int first, int last, int blocks) {
  const Index quotient = whole.count / blocks, rest = whole.count % blocks;
  const auto begin = [&](Index block) { return block * quotient + std::min(block, rest); };
  return whole.part(begin(first), begin(last) - begin(first));
}

Region block_of(Region whole, int block, int blocks) { return blocks_of(whole, block, block + 1, blocks); }

Index Schedule::elements_sent() const {
  Index sum = 0;
  for (const Step& s : steps) sum += s.kind == Step::Kind::send ? s.from.count : 0;
  return sum;
}

int Schedule::messages_sent() const {
  return static_cast<int>(std::ranges::count(steps, Step::Kind::send, &Step::kind));
}

Region Builder::input(Index count) { return {Buffer::input, 0, schedule_.input = count}; }
Region Builder::output(Index count) { return {Buffer::output, 0, schedule_.output = count}; }
Region Builder::scratch(Index count) {
  const Region r{Buffer::scratch, schedule_.scratch, count};
  schedule_.scratch += count;
  return r;
}

void Builder::check(std::string_view function, Region r) const {
  const Index sizes[] = {schedule_.input, schedule_.output, schedule_.scratch};
  const Index size = sizes[static_cast<int>(r.buffer)];
  if (r.offset < 0 || r.count < 0 || r.offset + r.count > size) {
    throw InvalidArgument("aloni::comm::Builder::" + std::string(function), "region", text(r),
                          "a part of the " + std::to_string(size) + " elements of that buffer");
  }
}

void Builder::send(int peer, Region from) {
  check("send", from);
  add({.kind = Step::Kind::send, .peer = peer, .from = from});
}

void Builder::receive(int peer, Region to) {
  check("receive", to);
  add({.kind = Step::Kind::receive, .peer = peer, .to = to});
}

void Builder::reduce(Region from, Region to, Operands operands) {
  check("reduce", from);
  check("reduce", to);
  if (from.count != to.count || overlap(from, to)) {
    throw InvalidArgument("aloni::comm::Builder::reduce", "from, to", text(from) + ", " + text(to),
                          "two separate regions of equal size");
  }
  if (from.count > 0) add({.kind = Step::Kind::reduce, .operands = operands, .from = from, .to = to});
}

void Builder::copy(Region from, Region to) {
  check("copy", from);
  check("copy", to);
  if (from.count != to.count || overlap(from, to)) {
    throw InvalidArgument("aloni::comm::Builder::copy", "from, to", text(from) + ", " + text(to),
                          "two separate regions of equal size");
  }
  if (from.count > 0) add({.kind = Step::Kind::copy, .from = from, .to = to});
}

void Builder::expose(Region r, const std::vector<int>& ranks) {
  check("expose", r);
  if (!schedule_.exposed_to.empty())
    throw InvalidArgument("aloni::comm::Builder::expose", "region", text(r), "one region for each schedule");
  if (std::ranges::count(ranks, schedule_.rank) != 1) {
    throw InvalidArgument("aloni::comm::Builder::expose", "ranks", std::to_string(ranks.size()) + " ranks",
                          "rank " + std::to_string(schedule_.rank) + " among them, once");
  }
  schedule_.exposed = r;
  schedule_.exposed_to = ranks;
}

void Builder::combine(Region own, Index place) {
  check("combine", own);
  if (schedule_.exposed_to.empty())
    throw InvalidArgument("aloni::comm::Builder::combine", "own", text(own), "a call of expose() before");
  if (own.count > 0) add({.kind = Step::Kind::combine, .to = own, .place = place});
}

void Builder::add(Step step) {
  auto& steps = schedule_.steps;
  auto& dependencies = schedule_.dependencies;
  step.first_dependency = static_cast<int>(dependencies.size());
  // Goes back from the latest step. Transitive dependencies are left out.
  std::vector<bool> implied(steps.size(), false);
  for (int i = static_cast<int>(steps.size()) - 1; i >= 0; --i) {
    const Step& earlier = steps[static_cast<std::size_t>(i)];
    bool chosen = false;
    if (!implied[static_cast<std::size_t>(i)] && (i < fence_ || conflict(earlier, step))) {
      dependencies.push_back(i);
      chosen = true;
    }
    if (chosen || implied[static_cast<std::size_t>(i)]) {
      for (int d : schedule_.dependencies_of(earlier)) implied[static_cast<std::size_t>(d)] = true;
    }
  }
  std::reverse(dependencies.begin() + step.first_dependency, dependencies.end());
  step.num_dependencies = static_cast<int>(dependencies.size()) - step.first_dependency;
  steps.push_back(step);
}

Schedule Builder::finish() {
  fence_ = 0;
  return std::exchange(schedule_, Schedule{.rank = schedule_.rank});
}

}  // namespace aloni::comm
