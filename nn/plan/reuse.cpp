#include <aloni/nn/plan/reuse.hpp>

#include <aloni/nn/plan/detail/addresses.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

using detail::AddressRange;

/// Sums of numbers that change, over a range of places.
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t places) : tree_(places + 1, 0) {}
  void add(std::size_t place, Index value) {
    for (std::size_t i = place + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] += value;
  }
  /// Of the places before `end`.
  Index before(std::size_t end) const {
    Index sum = 0;
    for (std::size_t i = end; i > 0; i -= i & (~i + 1)) sum += tree_[i];
    return sum;
  }
  Index all() const { return before(tree_.size() - 1); }

 private:
  std::vector<Index> tree_;
};

/// The memory in ranges, each with the time of its last use.
class LastUses {
 public:
  explicit LastUses(std::size_t times) : bytes_(times) {}

  /// Calls f(bytes, distance, time of the last use) for the parts of a range. Memory that was never used has no part.
  template <class F>
  void for_each_part(const AddressRange& range, std::size_t now, const F& f) const {
    for (auto i = first_after(range.first); i != uses_.end() && i->first < range.end; ++i) {
      const AddressRange part{std::max(range.first, i->first), std::min(range.end, i->second.end)};
      f(part.bytes(), bytes_.before(now) - bytes_.before(i->second.time + 1), i->second.time);
    }
  }
  /// All bytes that were used.
  Index bytes() const { return bytes_.all(); }
  /// Bytes whose last use was at this time.
  Index used_at(std::size_t time) const { return bytes_.before(time + 1) - bytes_.before(time); }

  void use(const AddressRange& range, std::size_t now) {
    if (range.bytes() == 0) return;
    split(range.first);
    split(range.end);
    const auto begin = uses_.lower_bound(range.first), end = uses_.lower_bound(range.end);
    for (auto i = begin; i != end; ++i) bytes_.add(i->second.time, i->first - i->second.end);
    uses_.erase(begin, end);
    uses_.emplace(range.first, Use{range.end, now});
    bytes_.add(now, range.bytes());
  }

 private:
  struct Use {
    Index end;
    std::size_t time;
  };
  using Uses = std::map<Index, Use>;  // by the first byte; disjoint

  /// The first range that ends behind `address`.
  Uses::const_iterator first_after(Index address) const {
    auto i = uses_.upper_bound(address);
    if (i != uses_.begin() && std::prev(i)->second.end > address) --i;
    return i;
  }
  /// Makes `address` a border of ranges.
  void split(Index address) {
    auto i = uses_.lower_bound(address);
    if (i == uses_.begin() || std::prev(i)->second.end <= address) return;
    --i;
    const Use rest = i->second;
    i->second.end = address;
    uses_.emplace(address, rest);
  }

  Uses uses_;
  PrefixSums bytes_;  // by the time of their last use
};

/// Which of the kernels of one kind of work.
struct PassOf {
  int operator()(const ConvolutionWork& w) const { return (w.gathers ? 1 : 0) + (w.backward ? 2 : 0); }
  int operator()(const PoolingWork& w) const { return static_cast<int>(w.kind) * 2 + (w.backward ? 1 : 0); }
  int operator()(const GlobalAverageWork& w) const { return static_cast<int>(w.stage); }
  int operator()(const ResamplingWork& w) const { return w.backward ? 1 : 0; }
  int operator()(const NormalisationWork& w) const { return static_cast<int>(w.stage); }
  int operator()(const DenseWork& w) const { return static_cast<int>(w.pass); }
  int operator()(const PointwiseWork& w) const { return static_cast<int>(w.function); }
  int operator()(const LossWork& w) const { return static_cast<int>(w.stage); }
  int operator()(const NormWork& w) const { return static_cast<int>(w.stage); }
  int operator()(const auto&) const { return 0; }
};

/// A box with gaps spans more bytes than it has.
double bytes_in_box(const StepPlan& plan, const PlanRegion& r) {
  return static_cast<double>(r.box.size() * bytes_of(plan.buffers[static_cast<std::size_t>(r.buffer)].type));
}

}  // namespace

KernelCode code_of(const Work& work) { return {work.index(), std::visit(PassOf{}, work)}; }

Reuse reuse_at(double bytes, double distance) {
  Reuse reuse{.code_bytes = distance, .step_bytes = distance};
  for (std::size_t i = 0; i < reuse_distances.size(); ++i)
    if (distance >= reuse_distances[i]) reuse.far_bytes[i] = bytes;
  return reuse;
}

std::vector<Reuse> reuse_of(const StepPlan& plan, const MemoryLayout& layout) {
  const detail::Addresses addresses(plan, layout);
  LastUses uses(2 * plan.nodes.size());
  std::vector<Reuse> all(plan.nodes.size());
  std::vector<Index> own(plan.nodes.size());  // bytes of each node, known behind the first step
  double used = 0;                            // bytes so far, in both steps
  std::map<KernelCode, double> code_used{};   // the same behind the last node with this code
  for (const bool counts : {false, true}) {
    for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
      const PlanNode& node = plan.nodes[n];
      const std::size_t now = n + (counts ? plan.nodes.size() : 0);
      if (counts && node.kind() == NodeKind::kernel) {
        all[n].code_bytes = used - code_used.at(code_of(node.work));
        detail::for_each_region(plan, static_cast<int>(n), [&](const PlanRegion& r) {
          const AddressRange range = addresses.of(r);
          if (range.bytes() == 0) return;
          const double share = bytes_in_box(plan, r) / static_cast<double>(range.bytes());
          uses.for_each_part(range, now, [&](Index part, Index between, std::size_t last) {
            const Index streamed = (own[last % own.size()] + own[n]) / 2;
            const Reuse of_part = reuse_at(share * static_cast<double>(part), static_cast<double>(between + streamed));
            for (std::size_t i = 0; i < of_part.far_bytes.size(); ++i) all[n].far_bytes[i] += of_part.far_bytes[i];
          });
        });
      }
      detail::for_each_region(plan, static_cast<int>(n), [&](const PlanRegion& r) {
        uses.use(addresses.of(r), now);
        used += bytes_in_box(plan, r);
      });
      own[n] = uses.used_at(now);
      code_used[code_of(node.work)] = used;
    }
  }
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (plan.nodes[n].kind() == NodeKind::kernel) all[n].step_bytes = static_cast<double>(uses.bytes());
  return all;
}

}  // namespace aloni::nn
