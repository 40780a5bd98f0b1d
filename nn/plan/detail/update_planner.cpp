#include <aloni/nn/plan/detail/update_planner.hpp>

#include <aloni/nn/plan/detail/reduction_members.hpp>
#include <aloni/nn/plan/norm_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace aloni::nn::detail {

namespace {

/// Adds the nodes that sum squares, and the node that makes factors of them. Returns the buffer of the factors.
class NormPlanner {
 public:
  NormPlanner(PlanBuilder& builder, const ParameterLayout& parameters, const UpdateBuffers& buffers)
      : builder_(builder),
        parameters_(parameters),
        buffers_(buffers),
        layout_(lay_out_norms(parameters, builder.rank())),
        with_values_(properties_of(*builder.plan().update).uses_norms) {}

  BufferId add() {
    const Index parts = with_values_ ? 2 : 1;
    const auto add_array = [&](const char* name, Index elements) {
      return builder_.add_array(name, BufferRole::optimiser, ElementType::float64, elements);
    };
    chunks_ = add_array("update.norm_chunks", layout_.chunks);
    whole_ = add_array("update.norm_sums", parts * layout_.whole_sums);
    if (layout_.block_sums > 0) blocks_ = add_array("update.norm_block_sums", parts * layout_.block_sums);
    const auto rates = static_cast<Index>(with_values_ ? layout_.tensors.size() : 0);
    const BufferId factors = add_array("update.factors", 2 + rates);
    for (std::size_t s = 0; s < layout_.segments.size(); ++s) add_squares(s);
    builder_.begin("norms", -1, StepPhase::update);
    if (blocks_ != no_buffer) {
      ReductionWork sum{.elements = builder_[blocks_].box.size(), .buffers = {blocks_}};
      sum.members = members_of_gradients(1, builder_.ranks(), builder_.rank());
      builder_.reduction("sums over ranks", std::move(sum), {builder_.whole(blocks_)});
    }
    builder_.add("factors",
                 NormWork{.stage = NormStage::factors,
                          .whole_sums = whole_,
                          .block_sums = blocks_,
                          .factors = factors,
                          .sums_read = parts * (layout_.whole_sums + layout_.block_sums)},
                 {builder_.whole(whole_), builder_.whole(blocks_)}, {builder_.whole(factors)});
    return factors;
  }

 private:
  void add_squares(std::size_t s) {
    const NormSegment& segment = layout_.segments[s];
    if (segment.tensors == 0) return;
    NormWork work{.segment = static_cast<int>(s),
                  .elements = (with_values_ ? 2 : 1) * segment.elements,
                  .blocks = parameters_.blocks[s],
                  .block = segment.block,
                  .is_first_copy = segment.is_first_copy,
                  .chunks = chunks_,
                  .sums = parameters_.blocks[s] == 1 ? whole_ : blocks_};
    PlanBuilder::Regions reads, writes{builder_.whole(chunks_)};
    for (std::size_t p = 0; p < parameters_.places.size(); ++p) {
      if (parameters_.places[p].segment != s) continue;
      work.tensors.push_back({with_values_ ? buffers_.values[p] : no_buffer, buffers_.gradients[p]});
      reads.push_back(builder_.whole(work.tensors.back().value));
      reads.push_back(builder_.whole(buffers_.gradients[p]));
    }
    const NormTensor& first = layout_.tensors[segment.first_tensor];
    const NormTensor& last = layout_.tensors[segment.first_tensor + segment.tensors - 1];
    const Index half = builder_[work.sums].box.size() / (with_values_ ? 2 : 1);
    for (Index part = 0; part < (with_values_ ? 2 : 1); ++part) {
      views::Box sums = builder_[work.sums].box;
      sums.set(views::Dim::channel, part * half + first.first_sum, part * half + last.first_sum + last.blocks);
      writes.push_back({work.sums, sums});
    }
    builder_.begin("norms", -1, StepPhase::update);
    builder_.add("squares", std::move(work), std::move(reads), std::move(writes));
  }

  PlanBuilder& builder_;
  const ParameterLayout& parameters_;
  const UpdateBuffers& buffers_;
  NormLayout layout_;
  bool with_values_;
  BufferId chunks_ = no_buffer, whole_ = no_buffer, blocks_ = no_buffer;
};

}  // namespace

void add_update(PlanBuilder& builder, const ParameterLayout& parameters, const UpdateBuffers& buffers) {
  const OptimiserKind kind = *builder.plan().update;
  const BufferId factors =
      uses_norms(kind, builder.plan().update_options) ? NormPlanner(builder, parameters, buffers).add() : no_buffer;
  for (std::size_t s = 0; s < parameters.blocks.size(); ++s) {
    builder.begin("update", -1, StepPhase::update);
    PlanBuilder::Regions reads{builder.whole(factors)}, writes;
    OptimiserWork work{
        .kind = kind, .factors = factors, .segment = static_cast<int>(s), .elements = parameters.lengths[s]};
    for (std::size_t p = 0; p < parameters.places.size(); ++p) {
      if (parameters.places[p].segment != s) continue;
      work.tensors.push_back({buffers.values[p], buffers.gradients[p], buffers.states[p]});
      reads.push_back(builder.whole(buffers.gradients[p]));
      const auto change = [&](BufferId b) {
        reads.push_back(builder.whole(b));
        writes.push_back(builder.whole(b));
      };
      change(buffers.values[p]);
      std::ranges::for_each(buffers.states[p], change);
    }
    builder.add("", std::move(work), std::move(reads), std::move(writes));
  }
}

}  // namespace aloni::nn::detail
