#pragma once
// Plans the passes of one convolution, transposed or not, on one rank. It plans interior and border, and the place of
// the ghosts: in place, in copies of the faces, or in one copy. It plans the chunks of gathered rows and of partial
// sums, and the slabs between which messages progress. nn/distributed_convolution.hpp says when each is used.
#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/detail/builder.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn::detail {

struct ConvolutionBuffers {
  BufferId x = no_buffer;   ///< covers input_needed(rank), the owned part included
  BufferId y = no_buffer;   ///< covers the owned outputs; with Overlap::recompute_halo, forward_work(rank)
  BufferId dx = no_buffer;  ///< covers the owned inputs; no_buffer: not computed
  BufferId dy = no_buffer;  ///< covers output_gradient_box(rank); no_buffer: forward only
  BufferId w = no_buffer, dw = no_buffer;
  BufferId b = no_buffer, db = no_buffer;  ///< of all filters; no_buffer: no bias
};

struct ConvolutionPlanOptions {
  std::string label = "convolution";  ///< part of names of buffers and messages
  int layer = 0;
  bool input_is_complete = false;            ///< another transfer fills the ghosts of x
  bool fuse_relu = false;                    ///< forward with max(y, 0), if the convolution can
  std::optional<double> largest_overhead{};  ///< replaces those of the machine
};

class ConvolutionPlanner {
 public:
  /// Adds the buffers of the convolution's own. `plan`, the builder's plan included, outlives this object.
  /// @pre plan.convolution. Throws InvalidArgument if the weights of the rank are not in the buffer w.
  ConvolutionPlanner(PlanBuilder& builder, const LayerPlan& plan, const ConvolutionBuffers& buffers,
                     const ConvolutionPlanOptions& options);

  // Each function adds the nodes of one part. Every rank calls the same functions in the same order.
  void add_input_exchange() { add_exchanges(*forward_, "ghosts of x"); }
  /// `relu` also computes max(y, 0). @pre !relu or fuses_relu()
  void add_forward(bool relu = false);
  /// Whether add_forward() accepts `relu`. Equal on all ranks.
  bool fuses_relu() const;
  /// Whether add_gradient_exchange() adds transfers. Equal on all ranks.
  bool exchanges_gradient() const { return backward_ && backward_->supply != Supply::complete; }
  void add_gradient_exchange();
  void add_backward_filter();
  void add_backward_data();

 private:
  /// How a rank gets the source of a direction.
  enum class Supply : std::uint8_t {
    complete,  ///< no exchange: the rank owns all it needs, or another transfer brings it
    in_place,  ///< ghosts are received in the memory of the source
    faces,     ///< thin copies of the sources of border regions
    copy       ///< a copy of the whole source with its ghosts
  };
  struct Exchange {
    TransferWork work;
    PlanBuilder::Regions reads, writes;
  };
  struct Region {
    ConvolutionWork work;
    views::Box read;  ///< of the source
  };
  /// One direction.
  struct Pass {
    Direction direction;
    BufferId source, target;
    Supply supply = Supply::complete;
    bool reduces = false;  ///< several ranks add to the targets that one of them owns
    std::vector<Exchange> exchanges = {};
    /// `interior` reads the owned source, and stale ghosts whose results `border` overwrites.
    std::vector<Region> interior = {}, border = {};
    // If `reduces`, partial sums replace the others. Chunks use two buffers in turn.
    std::vector<Region> partial = {};
    std::vector<views::Box> completed = {};  ///< per chunk: the targets that it completes
    std::vector<TransferWork> reductions = {};
    std::vector<BufferId> sums = {}, complete = {};  ///< per chunk: partial sums; sums over ranks before rounding
    BufferId copy = no_buffer;                       ///< copy of the source in the type of the sums
  };

  bool rounds_sums() const { return builder_.activations() != builder_.parameters(); }
  Index multiplications_per_pixel() const { return plan_.weights().size() / plan_.convolution->groups; }

  void plan_weights();
  void plan_filters();
  void plan_pass(Pass& pass, Supply supply);
  int count_chunks(const Pass& pass, const halo::NeededBox& needed) const;
  void exchange_in_chunks(Pass& pass, const halo::NeededBox& needed, int chunks);
  void compute_in_chunks(Pass& pass, int chunks);
  void take_copy(Pass& pass, const halo::NeededBox& needed);
  void add_faces(Pass& pass, const std::vector<views::Box>& border);
  void add_copies(Pass& pass, const std::vector<BufferId>& copies, const std::vector<halo::NeededBox>& boxes);
  bool copies_faces(const Direction& d) const;
  bool uses_the_network(const Pass& pass) const;
  bool computes_interior_first(const Pass& pass, const views::Box& work) const;
  int count_slabs(const views::Box& box) const;
  BufferId add_ghosts(const std::string& what, const views::Box& box);
  Region region(const Pass& pass, const views::Box& box, BufferId source, BufferId target, bool partial_sums) const;

  void add_exchanges(const Pass& pass, const std::string& what);
  void add_weights();
  void add_regions(const Pass& pass, bool relu);
  void add_partial_sums(const Pass& pass);

  PlanBuilder& builder_;
  const LayerPlan& plan_;
  ConvolutionBuffers buffers_;
  ConvolutionPlanOptions options_;
  std::vector<int> neighbours_;  ///< this rank, and the ranks with which it may exchange messages
  /// Whether any rank adds to filters, or channels, of other ranks. The gradient of the weights then needs the ghosts
  /// of dy too.
  bool other_filters_, other_channels_;
  int weights_ = 0;               ///< index in StepPlan::convolution_weights
  BufferId filters_ = no_buffer;  ///< stands for the weights in the kernels' order
  bool covers_weights_ = true;    ///< every weight in the buffer belongs to a part
  std::optional<Pass> forward_, backward_;
};

}  // namespace aloni::nn::detail
