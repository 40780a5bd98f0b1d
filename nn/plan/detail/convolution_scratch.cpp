#include <aloni/nn/plan/detail/convolution_scratch.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

using views::Box;

void add_convolution_scratch(PlanBuilder& builder) {
  const StepPlan& plan = builder.plan();
  const auto dense = [&](BufferId b, const Box& part) { return is_dense(part, builder[b].box); };
  Index most_of_all = 0, most_of_borders = 0, most_of_copies = 0, filters = 0, filters_of_borders = 0;
  // Of filters, or of their gradient, in the order of oneDNN: Scratch::share_filters().
  const auto add_filters = [&](int weights, const ConvolutionCall& call, bool border) {
    if (plan.keeps_filters || !call.computes || call.backend != local::ConvolutionBackend::onednn) return;
    const auto& parts = plan.convolution_weights[static_cast<std::size_t>(weights)].parts;
    Index& most = border && has_border_stream(plan.streams) ? filters_of_borders : filters;
    most = std::max(most, parts[static_cast<std::size_t>(call.part)].box.size() * bytes_of(builder.parameters()));
  };
  const auto add = [&](const ConvolutionCall& call, local::ConvolutionPasses passes, ElementType type,
                       bool border = false) {
    Index& most = border && has_border_stream(plan.streams) ? most_of_borders : most_of_all;
    const bool copies = type == ElementType::float16 && builder.machine().on_host;
    if (copies) passes.dense_input = passes.dense_output = true;
    if (copies && call.computes && call.backend != local::ConvolutionBackend::reference)
      most_of_copies = std::max(most_of_copies, local::bytes_as_floats(call.problem));
    if (call.computes && call.backend == local::ConvolutionBackend::onednn)
      most = std::max(most, local::scratch_bytes(call.problem, passes, static_cast<int>(bytes_of(type)),
                                                 static_cast<int>(bytes_of(builder.parameters()))));
  };
  for (const PlanNode& node : plan.nodes) {
    if (const auto* work = std::get_if<ConvolutionWork>(&node.work)) {
      for (const ConvolutionCall& call : work->calls) {
        const bool source = work->copy != no_buffer || dense(work->source, call.source);
        const bool target = dense(work->target, call.target);
        add_filters(work->weights, call, work->border);
        add(call,
            {.forward = work->gathers,
             .backward_data = !work->gathers,
             .dense_input = work->gathers ? source : target,
             .dense_output = work->gathers ? target : source},
            builder[work->target].type, work->border);
      }
    } else if (const auto* gradient = std::get_if<FilterGradientWork>(&node.work)) {
      for (const ConvolutionCall& call : gradient->calls) {
        const bool x = dense(gradient->x, call.source), dy = dense(gradient->dy, call.target);
        const bool multiplies = local::multiplies_for_filters(call.problem, builder.activations());
        if (!multiplies) add_filters(gradient->weights, call, false);
        if (multiplies && !local::copies_for_products(call.problem)) continue;
        add(call,
            {.backward_filter = !multiplies && plan.keeps_filters,
             .dense_input = gradient->transposed ? dy : x,
             .dense_output = gradient->transposed ? x : dy},
            builder.activations());
      }
    }
  }
  const Index element = bytes_of(builder.parameters());
  for (const auto& [name, bytes] :
       {std::pair{"convolution_scratch", most_of_all}, std::pair{"convolution_scratch_of_borders", most_of_borders},
        std::pair{"convolution_filters", filters}, std::pair{"convolution_filters_of_borders", filters_of_borders},
        std::pair{"convolution_copies", most_of_copies}}) {
    if (bytes == 0) continue;
    const BufferId scratch =
        builder.add_array(name, BufferRole::workspace, builder.parameters(), (bytes + element - 1) / element);
    builder.at(scratch).by_kernels = true;
  }
}

void mark_reads_beyond(StepPlan& plan) {
  if (plan.ranks == 1) return;
  const auto check = [&](const PlanNode& node, BufferId b, const Box& box) {
    std::vector<Box> rest{box};
    for (const PlanRegion& r : node.reads) {
      if (r.buffer != b) continue;
      std::vector<Box> outside;
      for (const Box& part : rest) {
        const Box common = intersect(part, r.box);
        const std::vector<Box> left = common.empty() ? std::vector{part} : difference(part, common);
        outside.insert(outside.end(), left.begin(), left.end());
      }
      rest = std::move(outside);
    }
    if (!rest.empty()) plan.buffers[static_cast<std::size_t>(plan.root(b))].read_beyond = true;
  };
  for (const PlanNode& node : plan.nodes) {
    if (const auto* work = std::get_if<ConvolutionWork>(&node.work)) {
      for (const ConvolutionCall& call : work->calls)
        if (call.computes) check(node, work->source, call.source);
    } else if (const auto* gradient = std::get_if<FilterGradientWork>(&node.work)) {
      for (const ConvolutionCall& call : gradient->calls) {
        if (!call.computes) continue;
        check(node, gradient->x, call.source);
        check(node, gradient->dy, call.target);
      }
    }
  }
}

}  // namespace aloni::nn::detail
