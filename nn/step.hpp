#pragma once
// A step graph with executable nodes. Layers add their nodes once; the step then runs any number of times.
//
//   Step<Exec> step;
//   step.transfer("halo", {reads(x, owned), writes(x, ghosts)}, halo);
//   step.kernel("interior", {reads(x, owned), writes(y, inner)}, [=](const Exec& exec) { … });
//   step.kernel("boundary", {reads(x, needed), writes(y, outer)}, [=](const Exec& exec) { … });
//   step.prepare();
//   step.execute(queue, comm, stopwatch);                    // one queue for everything, or
//   step.execute(kernels, communication, comm, stopwatch);   // packing, unpacking and sums over ranks beside kernels
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/core/queue_mark.hpp>
#include <aloni/core/stopwatch.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/nn/step_graph.hpp>
#include <aloni/nn/step_times.hpp>
#include <aloni/nn/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

template <class T, class Mem>
Access reads(const Tensor<T, Mem>& t, const views::Box& box) {
  return {t.storage.data(), box, false};
}
template <class T, class Mem>
Access writes(const Tensor<T, Mem>& t, const views::Box& box) {
  return {t.storage.data(), box, true};
}
/// The part that this rank owns.
template <class T, class Mem>
Access reads(const Tensor<T, Mem>& t) {
  return reads(t, t.owned);
}
template <class T, class Mem>
Access writes(const Tensor<T, Mem>& t) {
  return writes(t, t.owned);
}

/// A whole View.
template <class View>
requires Kokkos::is_view_v<View> Access reads(const View& v) {
  return {v.data(), {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, false};
}
template <class View>
requires Kokkos::is_view_v<View> Access writes(const View& v) {
  return {v.data(), {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, true};
}

/// State that a layer keeps between its own kernels, named by an object.
template <class Object>
requires(!Kokkos::is_view_v<Object>) Access reads(const Object& owner) {
  return {&owner, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, false};
}
template <class Object>
requires(!Kokkos::is_view_v<Object>) Access writes(const Object& owner) {
  return {&owner, {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, true};
}

template <class Exec>
class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  using Kernel = std::function<void(const Exec&)>;
  using Action = std::function<void(const Queue<Exec>&)>;

  /// Prefix of the labels of all nodes added from now on: "aloni::nn::forward conv1".
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }

  /// `run` submits kernels. It neither fences nor communicates.
  void kernel(const std::string& what, std::vector<Access> accesses, Kernel run) {
    kernel({labelled(what), NodeKind::kernel, std::move(accesses)}, std::move(run));
  }
  /// A node with its whole label, regardless of set_scope().
  void kernel(StepNode node, Kernel run) {
    add(std::move(node), {[run = std::move(run)](const Queue<Exec>& queue) { run(queue.space()); }, {}});
  }
  /// `adjoint` runs the transposed transfer. The accesses are those of the direction that runs.
  void transfer(const std::string& what, std::vector<Access> accesses, halo::Transfer<Exec> moved,
                bool adjoint = false) {
    transfer({labelled(what), NodeKind::transfer, std::move(accesses)}, std::move(moved), adjoint);
  }
  void transfer(StepNode node, halo::Transfer<Exec> moved, bool adjoint) {
    const std::size_t slot = pending_.size();
    pending_.emplace_back();
    add(std::move(node), {[this, slot, moved, adjoint](const Queue<Exec>& queue) {
                            pending_[slot] = adjoint ? moved.start_adjoint(queue) : moved.start(queue);
                          },
                          [this, slot](const Queue<Exec>&) { pending_[slot].finish(); }});
  }
  /// `start` returns at once. `finish` completes the operation that `start` began.
  void collective(const std::string& what, std::vector<Access> accesses, Action start, Action finish) {
    collective({labelled(what), NodeKind::collective, std::move(accesses)}, std::move(start), std::move(finish));
  }
  void collective(StepNode node, Action start, Action finish) {
    add(std::move(node), {std::move(start), std::move(finish)});
  }

  /// Computes the order of the actions. Call it after the last node and before the first execution.
  void prepare(const ScheduleOptions& options = {}) {
    actions_ = schedule(graph_, options);
    waits_ = waits_between_queues(graph_, actions_);
    marks_.resize(actions_.size());
    for (const int w : waits_)
      if (w >= 0 && !marks_[static_cast<std::size_t>(w)]) marks_[static_cast<std::size_t>(w)].emplace();
  }

  const StepGraph& graph() const { return graph_; }
  const std::vector<StepAction>& actions() const { return actions_; }

  /// Runs the step after all earlier work on `queue`. Kernels submitted to `queue` afterwards see all results.
  /// Communication of the ranks makes progress between kernels. Allocates nothing.
  /// Collective over the ranks that take part in the step's communication. Throws PeerFailed, CommunicationError.
  void execute(const Queue<Exec>& queue, const comm::Communicator& comm, Stopwatch& stopwatch,
               StepTimes* times = nullptr) {
    execute(queue, queue, comm, stopwatch, times);
  }
  /// As above, with a second queue for transfers and collectives. Kernels and communication wait for each other as
  /// the graph says. `kernels` has the role of `queue` above.
  /// `times`: gets the time of each action, by StepNode::plan_node; null: nothing is recorded. On devices each action
  /// then waits for its queue. @pre times->begin() was called with the nodes of the plan
  void execute(const Queue<Exec>& kernels, const Queue<Exec>& communication, const comm::Communicator& comm,
               Stopwatch& stopwatch, StepTimes* times = nullptr) {
    static const std::string reason = "aloni::nn::Step: the other queue's part is complete";
    const bool two_queues = !(kernels.space() == communication.space());
    if (two_queues) {
      begin_.set(kernels);
      begin_.await(communication, reason);
    }
    for (std::size_t a = 0; a < actions_.size(); ++a) {
      const StepAction& action = actions_[a];
      const auto i = static_cast<std::size_t>(action.node);
      const StepNode& node = graph_.nodes[i];
      const ScopedRegion region(node.label);
      const auto timing = stopwatch.measure(phase(node.kind));
      const Queue<Exec>& queue = action.kind == StepActionKind::run ? kernels : communication;
      const std::int64_t start = times ? trace_now() : 0;
      if (two_queues && waits_[a] >= 0) marks_[static_cast<std::size_t>(waits_[a])]->await(queue, reason);
      if (action.kind == StepActionKind::finish) {
        work_[i].finish(queue);
      } else {
        work_[i].start(queue);
      }
      if (two_queues && marks_[a]) marks_[a]->set(queue);
      if (times) times->add(StepTimes::Action{node.plan_node, action.kind, start, completed(queue)});
      if (action.kind == StepActionKind::run) {
        const std::int64_t kernel_end = times ? trace_now() : 0;
        const bool worked = comm.progress();
        if (worked && times)
          times->add(StepTimes::Span{StepTimes::Row::communication, "progress", kernel_end, trace_now()});
      }
    }
    if (two_queues) {
      end_.set(communication);
      end_.await(kernels, reason);
    }
  }

 private:
  struct Work {
    Action start, finish;
  };

  static constexpr Stopwatch::Phase phase(NodeKind kind) {
    switch (kind) {
      case NodeKind::kernel:
        return Stopwatch::Phase::compute;
      case NodeKind::transfer:
        return Stopwatch::Phase::halo;
      case NodeKind::collective:
        break;
    }
    return Stopwatch::Phase::collective;
  }

  /// The time at which all work of the queue is complete.
  static std::int64_t completed(const Queue<Exec>& queue) {
    if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible)
      queue.fence("aloni::nn::Step: the time of a node ends");
    return trace_now();
  }

  std::string labelled(const std::string& what) const { return what.empty() ? scope_ : scope_ + ": " + what; }
  void add(StepNode node, Work work) {
    graph_.nodes.push_back(std::move(node));
    work_.push_back(std::move(work));
  }

  std::string scope_ = "aloni::nn::step";
  StepGraph graph_;
  std::vector<Work> work_;
  std::vector<StepAction> actions_;
  std::vector<int> waits_;  ///< of each action: the action of the other queue to wait for, or -1
  std::vector<std::optional<QueueMark<Exec>>> marks_;  ///< behind each action that the other queue waits for
  QueueMark<Exec> begin_, end_;
  std::vector<halo::Pending> pending_;
};

}  // namespace aloni::nn
