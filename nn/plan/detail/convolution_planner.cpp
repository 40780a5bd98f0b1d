#include <aloni/nn/plan/detail/convolution_planner.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;
using views::Distribution;

namespace {

/// The spatial dimension in which chunks of a box are contiguous, sample by sample.
Dim slab_dimension(const Box& box) {
  for (const Dim d : views::spatial_dims)
    if (box.extent(d) > 1) return d;
  return Dim::width;
}

/// Sources that a region needs. In dimensions in which the region is not split, all indices in memory: a part of the
/// memory would have to be packed.
Box source_of(const Direction& direction, int rank, const Box& box, const Box& memory) {
  Box needed = direction.needed_for(box, rank);
  if (needed.empty()) return needed;
  const Box work = direction.work(rank);
  for (const Dim d : views::spatial_dims)
    if (box.extent(d) == work.extent(d)) needed.set(d, memory.lower(d), memory.upper(d));
  return needed;
}

bool other_channels(const Box& needed, const Box& own) {
  return !needed.empty() &&
         (needed.lower(Dim::channel) < own.lower(Dim::channel) || needed.upper(Dim::channel) > own.upper(Dim::channel));
}

}  // namespace

ConvolutionPlanner::ConvolutionPlanner(PlanBuilder& builder, const LayerPlan& plan, const ConvolutionBuffers& buffers,
                                       const ConvolutionPlanOptions& options)
    : builder_(builder),
      plan_(plan),
      buffers_(buffers),
      options_(options),
      neighbours_(plan.blocks.neighbours(builder.rank())),
      other_filters_(needs_ghosts(plan, plan.output, [&](int r) { return plan.output_work(r); })),
      other_channels_(needs_ghosts(plan, plan.input, [&](int r) { return plan.input_work(r); })) {
  plan_weights();
  forward_.emplace(Pass{{plan_, false}, buffers_.x, buffers_.y});
  plan_pass(*forward_, options_.input_is_complete ? Supply::complete : Supply::in_place);
  if (buffers_.dy != no_buffer && (buffers_.dx != no_buffer || other_filters_)) {
    backward_.emplace(Pass{{plan_, true}, buffers_.dy, buffers_.dx});
    plan_pass(*backward_, plan_.output_gradient_in_place ? Supply::in_place : Supply::copy);
  }
  plan_filters();
}

void ConvolutionPlanner::plan_weights() {
  const int rank = builder_.rank();
  const Box box = builder_[buffers_.w].box;
  if (!contains(box, plan_.weights_needed(rank)) || !contains(views::whole(plan_.weights()), box)) {
    throw InvalidArgument("aloni::nn::plan_step", "box of the weights of " + options_.label, views::to_string(box),
                          views::to_string(plan_.weights_needed(rank)) + " or a box around it within " +
                              views::to_string(plan_.weights()));
  }
  ConvolutionWeights weights{.layer = options_.layer, .w = buffers_.w, .dw = buffers_.dw};
  Index covered = 0;
  for (const ConvolutionPart& part : plan_.convolution->parts(rank)) {
    const Box mine = plan_.convolution->weights_of(part, plan_.weights());
    weights.parts.push_back({part, mine, !is_dense(mine, box)});
    covered += mine.size();
  }
  covers_weights_ = covered == box.size();
  // One element stands for the version of the weights.
  filters_ = builder_.add_array(options_.label + "_filters", BufferRole::workspace, builder_.parameters(),
                                weights.parts.empty() ? 0 : 1);
  builder_.at(filters_).by_kernels = true;
  weights.filters = filters_;
  weights_ = static_cast<int>(builder_.plan().convolution_weights.size());
  builder_.plan().convolution_weights.push_back(std::move(weights));
}

/// Adds to filters_ the weights that kernels keep: dense copies, parts in oneDNN's orders unless all convolutions share
/// memory for them, and copies of parts with the precision of 16-bit activations. A pass that computes y has another
/// order than a pass that computes dL/dx; both read the same copy. Kernels of two streams share neither: one of them
/// would read it while the other one writes it.
void ConvolutionPlanner::plan_filters() {
  const auto& parts = builder_.plan().convolution_weights[static_cast<std::size_t>(weights_)].parts;
  Index elements = 0;
  for (const WeightPart& part : parts)
    if (part.copied) elements += (buffers_.dw == no_buffer ? 1 : 2) * part.box.size();
  const bool on_host = builder_.machine().on_host;
  std::set<std::pair<int, bool>> rounded;  // part, and whether for the stream of borders
  const auto is_rounded = [&](const ConvolutionCall& call) {
    if (on_host)  // in float, with the precision of float16
      return builder_.activations() == ElementType::float16 && call.backend != local::ConvolutionBackend::reference;
    return is_16_bit(builder_.activations()) && call.backend == local::ConvolutionBackend::cudnn;
  };
  for (const std::optional<Pass>* pass : {&forward_, &backward_}) {
    if (!*pass) continue;
    const bool beside = has_border_stream(builder_.plan().streams) && !(*pass)->interior.empty();
    std::set<std::pair<int, bool>> reordered;  // part, and whether for the stream of borders
    for (const auto* regions : {&(*pass)->interior, &(*pass)->border, &(*pass)->partial}) {
      const bool on_border_stream = beside && regions == &(*pass)->border;
      for (const Region& region : *regions) {
        for (const ConvolutionCall& call : region.work.calls) {
          if (!call.computes) continue;
          if (call.backend == local::ConvolutionBackend::onednn && builder_.plan().keeps_filters)
            reordered.emplace(call.part, on_border_stream);
          const bool in_float = regions == &(*pass)->partial;  // partial sums, whose filters are not rounded
          if (!in_float && is_rounded(call)) rounded.emplace(call.part, on_border_stream);
        }
      }
    }
    for (const auto& [part, on_border_stream] : reordered) elements += parts[static_cast<std::size_t>(part)].box.size();
  }
  for (const auto& [part, on_border_stream] : rounded) {
    const Index size = parts[static_cast<std::size_t>(part)].box.size();
    elements += on_host ? size : (size + 1) / 2;  // in units of float
  }
  if (elements > 0) builder_.at(filters_).owned = builder_.at(filters_).box = flat(elements);
}

bool ConvolutionPlanner::fuses_relu() const {
  return options_.fuse_relu && !forward_->reduces && !plan_.convolution->transposed;
}

// --- one direction ---

void ConvolutionPlanner::plan_pass(Pass& pass, Supply supply) {
  const Direction& d = pass.direction;
  const int rank = builder_.rank();
  const halo::NeededBox needed = [&](int r) {
    // The gradient of the weights needs dy of all filters that the rank multiplies.
    const Box wanted = d.needed(r);
    return d.backward && other_filters_ ? hull(wanted, plan_.output_work(r)) : wanted;
  };
  pass.reduces = d.backward ? other_channels_ : other_filters_;
  const bool gathers = std::ranges::any_of(plan_.blocks.representatives,
                                           [&](int r) { return other_channels(needed(r), d.source().owned(r)); });
  pass.supply = needs_ghosts(plan_, d.source(), needed) ? supply : Supply::complete;
  const bool computes = !d.backward || buffers_.dx != no_buffer;
  if (pass.reduces || gathers) {
    const int chunks = pass.reduces || pass.supply != Supply::complete ? count_chunks(pass, needed) : 1;
    if (pass.supply == Supply::in_place) exchange_in_chunks(pass, needed, gathers ? chunks : 1);
    if (pass.supply == Supply::copy) take_copy(pass, needed);
    if (computes) compute_in_chunks(pass, chunks);
    return;
  }
  const Box mine = d.work(rank);
  std::vector<Box> interior, border{mine};
  // All ranks must exchange in the same way, so the choice uses only data that all ranks have.
  if (pass.supply == Supply::copy && copies_faces(d)) pass.supply = Supply::faces;
  if (pass.supply == Supply::in_place) exchange_in_chunks(pass, needed, 1);
  if (pass.supply == Supply::faces || computes_interior_first(pass, mine))
    std::tie(interior, border) = d.interior_first(rank, mine);
  const BufferId source = pass.source;
  if (pass.supply == Supply::copy) take_copy(pass, needed);
  if (pass.supply == Supply::faces) {
    add_faces(pass, border);
    border.clear();
  }
  for (const Box& box : interior) {
    const int slabs = !builder_.machine().progress_thread && uses_the_network(pass) ? count_slabs(box) : 1;
    for (int k = 0; k < slabs; ++k)
      pass.interior.push_back(region(pass, chunk_of(box, slab_dimension(box), k, slabs), source, pass.target, false));
  }
  for (const Box& box : border) pass.border.push_back(region(pass, box, pass.source, pass.target, false));
}

/// Equal on all ranks.
int ConvolutionPlanner::count_chunks(const Pass& pass, const halo::NeededBox& needed) const {
  const Index bytes = bytes_of(pass.reduces ? builder_.parameters() : builder_.activations());
  double largest = 0;
  for (const int r : plan_.blocks.representatives) {
    const Box moved = pass.reduces ? pass.direction.work(r) : needed(r);
    largest = std::max(largest, static_cast<double>(moved.size() * bytes));
  }
  return std::clamp(static_cast<int>(largest / builder_.machine().chunk_bytes), 1, builder_.machine().most_chunks);
}

/// Receives ghosts, including channels of other ranks, in the memory of the source.
void ConvolutionPlanner::exchange_in_chunks(Pass& pass, const halo::NeededBox& needed, int chunks) {
  const Distribution& from = pass.direction.source();
  const Box memory = builder_[pass.source].box;
  for (int k = 0; k < chunks; ++k) {
    const auto part = [&](int r) {
      const Box all = needed(r);
      return all.empty() ? all : chunk_of(all, outermost(all), k, chunks);
    };
    Exchange exchange;
    exchange.work.name = options_.label + (pass.direction.backward ? "_dy" : "_x");
    exchange.work.items.push_back(
        {pass.source, pass.source, memory, memory,
         halo::plan_halo(from, part, halo::BoundaryConditions{}, builder_.rank(), neighbours_)});
    exchange.reads.push_back(builder_.owned(pass.source));
    const Box mine = part(builder_.rank());
    const Box own = intersect(builder_[pass.source].owned, mine);
    for (const Box& ghosts : own.empty() ? std::vector{mine} : difference(mine, own))
      exchange.writes.push_back({pass.source, ghosts});
    pass.exchanges.push_back(std::move(exchange));
  }
}

void ConvolutionPlanner::compute_in_chunks(Pass& pass, int chunks) {
  const Direction& d = pass.direction;
  const int rank = builder_.rank();
  // A chunk has the same rows in a rank's work and in its owned box, whatever the channels.
  const auto rows = [&](int r, int k) {
    const Box all = with_channels(d.target().owned(r), {0, 1});
    return chunk_of(all, outermost(all), k, chunks);
  };
  const auto part = [&](int r, int k) {
    const Box all = d.work(r);
    return with_channels(rows(r, k), {all.lower(Dim::channel), all.upper(Dim::channel)});
  };
  if (!pass.reduces) {
    for (int k = 0; k < chunks; ++k)
      pass.border.push_back(region(pass, part(rank, k), pass.source, pass.target, false));
    return;
  }
  const Box owned = builder_[pass.target].owned;
  const auto own = [&](int k) {
    return with_channels(rows(rank, k), {owned.lower(Dim::channel), owned.upper(Dim::channel)});
  };
  const std::string name = options_.label + (d.backward ? "_dx" : "_y");
  Index largest = 0, largest_own = 0, copied = 0;
  for (int k = 0; k < chunks; ++k) {
    largest = std::max(largest, part(rank, k).size());
    largest_own = std::max(largest_own, own(k).size());
  }
  std::vector<BufferId> roots, complete;
  for (int i = 0; i < std::min(chunks, 2); ++i) {
    const std::string number = std::to_string(i);
    roots.push_back(
        builder_.add_array(name + "_partial_sums_" + number, BufferRole::partial_sums, builder_.parameters(), largest));
    if (rounds_sums())
      complete.push_back(
          builder_.add_array(name + "_sums_" + number, BufferRole::partial_sums, builder_.parameters(), largest_own));
  }
  const auto alias = [&](const std::vector<BufferId>& of, const std::string& what, int k, const Box& box) {
    const BufferId root = of[static_cast<std::size_t>(k) % of.size()];
    return builder_.add({.name = name + what + "_of_chunk_" + std::to_string(k),
                         .role = BufferRole::partial_sums,
                         .type = builder_.parameters(),
                         .owned = box,
                         .box = box,
                         .alias = root,
                         .other_indices = true});
  };
  for (int k = 0; k < chunks; ++k) {
    const Box mine = part(rank, k);
    pass.completed.push_back(own(k));
    pass.sums.push_back(alias(roots, "_partial_sums", k, mine));
    BufferId destination = pass.target;  // of the sums over ranks
    if (rounds_sums()) {
      pass.complete.push_back(alias(complete, "_sums", k, own(k)));
      destination = pass.complete.back();
    }
    TransferWork transfer{.purpose = TransferPurpose::partial_sums, .adjoint = true, .name = options_.label + "_sums"};
    transfer.items.push_back({destination, pass.sums.back(), own(k), mine,
                              halo::plan_redistribution(
                                  d.target(), d.target(), [&](int r) { return part(r, k); }, halo::BoundaryConditions{},
                                  rank, neighbours_)});
    pass.reductions.push_back(std::move(transfer));
    pass.partial.push_back(region(pass, mine, pass.source, pass.sums.back(), true));
    if (!rounds_sums()) continue;
    for (const ConvolutionCall& call : pass.partial.back().work.calls)
      if (call.computes) copied = std::max(copied, call.source.size());
  }
  if (rounds_sums())
    pass.copy = builder_.add_array(name + "_copy", BufferRole::workspace, builder_.parameters(), copied);
}

/// Whether copies of faces cost less than a copy of the whole source. Equal on all ranks.
bool ConvolutionPlanner::copies_faces(const Direction& d) const {
  if (plan_.convolution->overlap == Overlap::blocking) return false;
  const MachineDescription& machine = builder_.machine();
  double faces = 0;
  for (const int r : plan_.blocks.representatives)
    faces = std::max(faces, d.overhead(r, d.work(r), machine.pixels_per_call));
  const double copy = machine.multiplications_per_copied_element *
                      static_cast<double>(plan_.output.extents()[Dim::channel]) /
                      static_cast<double>(std::max<Index>(1, multiplications_per_pixel()));
  return faces < copy;
}

bool ConvolutionPlanner::uses_the_network(const Pass& pass) const {
  const auto far = [&](const halo::Message& m) { return !builder_.machine().share_memory(builder_.rank(), m.peer); };
  for (const Exchange& exchange : pass.exchanges)
    for (const TransferItemPlan& item : exchange.work.items)
      if (std::ranges::any_of(item.plan.sends, far) || std::ranges::any_of(item.plan.receives, far)) return true;
  return false;
}

/// Whether to compute the interior in calls of its own while ghosts travel. @pre pass.exchanges is filled
bool ConvolutionPlanner::computes_interior_first(const Pass& pass, const Box& work) const {
  if (pass.supply != Supply::in_place || plan_.convolution->overlap == Overlap::blocking) return false;
  const MachineDescription& machine = builder_.machine();
  const double most = machine.on_host && !uses_the_network(pass) ? machine.interior_overhead_beside_copies
                                                                 : machine.interior_overhead_beside_messages;
  return pass.direction.overhead(builder_.rank(), work, machine.pixels_per_call) <=
         options_.largest_overhead.value_or(most);
}

int ConvolutionPlanner::count_slabs(const Box& box) const {
  const double work = static_cast<double>(pixels(box)) * static_cast<double>(multiplications_per_pixel());
  const Index most = std::min<Index>(box.extent(slab_dimension(box)), builder_.machine().most_slabs);
  return static_cast<int>(
      std::clamp<double>(work / builder_.machine().multiplications_per_slab, 1, static_cast<double>(most)));
}

BufferId ConvolutionPlanner::add_ghosts(const std::string& what, const Box& box) {
  return builder_.add({.name = options_.label + what,
                       .role = BufferRole::ghosts,
                       .type = builder_.activations(),
                       .owned = box,
                       .box = box});
}

/// Adds one transfer that fills copies of the source. `boxes`: for each copy the box of a rank.
void ConvolutionPlanner::add_copies(Pass& pass, const std::vector<BufferId>& copies,
                                    const std::vector<halo::NeededBox>& boxes) {
  const Distribution& from = pass.direction.source();
  Exchange exchange;
  exchange.work.name = options_.label + "_dy";
  exchange.reads.push_back(builder_.owned(pass.source));
  for (std::size_t i = 0; i < copies.size(); ++i) {
    exchange.work.items.push_back(
        {pass.source, copies[i], builder_[pass.source].box, builder_[copies[i]].box,
         halo::plan_redistribution(from, from, boxes[i], halo::BoundaryConditions{}, builder_.rank(), neighbours_)});
    exchange.writes.push_back(builder_.whole(copies[i]));
  }
  pass.exchanges.push_back(std::move(exchange));
}

/// Replaces the source of the direction by a copy with ghosts.
void ConvolutionPlanner::take_copy(Pass& pass, const halo::NeededBox& needed) {
  const BufferId copy = add_ghosts("_dy_with_ghosts", needed(builder_.rank()));
  add_copies(pass, {copy}, {needed});
  pass.source = copy;
}

/// Adds for each border region a copy of its sources. All ranks have the same number of copies; some are empty.
void ConvolutionPlanner::add_faces(Pass& pass, const std::vector<Box>& border) {
  const Direction& d = pass.direction;
  const auto regions_of = [&](int r) { return d.interior_first(r, d.work(r)).second; };
  std::size_t most = 0;
  for (const int r : plan_.blocks.representatives) most = std::max(most, regions_of(r).size());
  std::map<int, std::vector<Box>> regions;  // of this rank and its neighbours
  for (const int r : neighbours_) regions[r] = regions_of(r);
  std::vector<BufferId> copies;
  std::vector<halo::NeededBox> boxes;
  for (std::size_t i = 0; i < most; ++i) {
    boxes.emplace_back([&regions, &d, i](int r) {
      const auto& mine = regions.at(r);
      return i < mine.size() ? d.needed_for(mine[i], r) : Box{};
    });
    copies.push_back(add_ghosts("_dy_face_" + std::to_string(i), boxes.back()(builder_.rank())));
  }
  add_copies(pass, copies, boxes);
  for (std::size_t i = 0; i < border.size(); ++i)
    pass.border.push_back(region(pass, border[i], copies[i], pass.target, false));
}

/// One call of a kernel per part of the channels. Where several samples are not dense together, one per sample.
/// `box`: includes all channels that the rank works on.
ConvolutionPlanner::Region ConvolutionPlanner::region(const Pass& pass, const Box& box, BufferId source,
                                                      BufferId target, bool partial_sums) const {
  const Direction& d = pass.direction;
  const Box from_memory = builder_[source].box, to_memory = builder_[target].box;
  Region region;
  region.work = {.backward = d.backward,
                 .gathers = d.gathers(),
                 .partial_sums = partial_sums,
                 .weights = weights_,
                 .source = source,
                 .target = target,
                 .bias = d.backward || partial_sums ? no_buffer : buffers_.b,
                 .region = box};
  const auto& parts = builder_.plan().convolution_weights[static_cast<std::size_t>(weights_)].parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ConvolutionPart& part = parts[i].part;
    const Box to = with_channels(box, d.target_channels(part));
    if (to.empty()) continue;
    const Box from = with_channels(source_of(d, builder_.rank(), box, from_memory), d.source_channels(part));
    const bool whole =
        (is_dense(intersect(from, from_memory), from_memory) && is_dense(to, to_memory)) || to.extent(Dim::sample) == 1;
    const Index step = whole ? to.extent(Dim::sample) : 1;
    for (Index n = to.lower(Dim::sample); n < to.upper(Dim::sample); n += step) {
      ConvolutionCall call{.part = static_cast<int>(i), .computes = !from.empty()};
      call.target = with_range(to, Dim::sample, n, n + step);
      if (call.computes) {
        call.source = intersect(with_range(from, Dim::sample, n, n + step), from_memory);
        call.problem =
            problem_of(d.plan, part, d.backward ? call.target : call.source, d.backward ? call.source : call.target);
        // Sources of sums that are rounded later are copied into dense memory first.
        const bool source_gaps = !(partial_sums && rounds_sums()) && !is_dense(call.source, from_memory);
        const bool target_gaps = !is_dense(call.target, to_memory);
        builder_.choose_implementation(
            call, {.problem = call.problem,
                   .pass = d.gathers() ? local::ConvolutionPass::forward : local::ConvolutionPass::backward_data,
                   .type = partial_sums ? builder_.parameters() : builder_.activations(),
                   .input_gaps = d.gathers() ? source_gaps : target_gaps,
                   .output_gaps = d.gathers() ? target_gaps : source_gaps});
        call.tf32 = builder_.uses_tf32(call.backend, partial_sums ? builder_.parameters() : builder_.activations());
      }
      region.work.calls.push_back(std::move(call));
    }
    const Box needed = with_channels(d.needed_for(box, builder_.rank()), d.source_channels(part));
    region.read = hull(region.read, intersect(needed, from_memory));
  }
  return region;
}

// --- nodes ---

void ConvolutionPlanner::add_exchanges(const Pass& pass, const std::string& what) {
  for (const Exchange& e : pass.exchanges) builder_.transfer(what, e.work, e.reads, e.writes);
}

void ConvolutionPlanner::add_weights() {
  builder_.add("weights", WeightsWork{weights_}, {builder_.whole(buffers_.w)}, {builder_.whole(filters_)});
}

void ConvolutionPlanner::add_regions(const Pass& pass, bool relu) {
  add_weights();
  const auto add = [&](const Region& region, const std::string& what, const PlanRegion& source) {
    ConvolutionWork work = region.work;
    work.relu = relu;
    work.border = what == "border";
    const PlanRegion bias = builder_.whole(work.bias);
    const PlanRegion target{work.target, work.region};
    builder_.add(what, std::move(work), {source, builder_.whole(filters_), bias}, {target});
  };
  // The interior also reads stale ghosts; the border overwrites the results.
  for (const Region& r : pass.interior) add(r, "interior", builder_.owned(r.work.source));
  for (const Region& r : pass.border) add(r, pass.interior.empty() ? "" : "border", {r.work.source, r.read});
  add_partial_sums(pass);
}

void ConvolutionPlanner::add_partial_sums(const Pass& pass) {
  for (std::size_t k = 0; k < pass.partial.size(); ++k) {
    const Region& region = pass.partial[k];
    ConvolutionWork work = region.work;
    work.copy = pass.copy;
    builder_.add("partial sums", std::move(work), {{pass.source, region.read}, builder_.whole(filters_)},
                 {builder_.whole(pass.sums[k]), builder_.whole(pass.copy)});
    const PlanRegion result =
        rounds_sums() ? builder_.whole(pass.complete[k]) : PlanRegion{pass.target, pass.completed[k]};
    builder_.transfer("sums over ranks", pass.reductions[k], {builder_.whole(pass.sums[k])}, {result});
    if (!rounds_sums() || pass.completed[k].empty()) continue;
    // The bias is added before rounding, so that there is one rounding.
    const BufferId bias = pass.direction.backward ? no_buffer : buffers_.b;
    builder_.add("round", RoundingWork{pass.complete[k], pass.target, bias, pass.completed[k]},
                 {result, builder_.whole(bias)}, {result, {pass.target, pass.completed[k]}});
  }
}

void ConvolutionPlanner::add_forward(bool relu) {
  add_regions(*forward_, relu);
  if (!forward_->reduces || rounds_sums() || buffers_.b == no_buffer || builder_[buffers_.y].owned.empty()) return;
  builder_.add("bias", BiasWork{buffers_.b, buffers_.y, builder_[buffers_.y].owned},
               {builder_.whole(buffers_.b), builder_.owned(buffers_.y)}, {builder_.owned(buffers_.y)});
}

void ConvolutionPlanner::add_gradient_exchange() {
  if (backward_) add_exchanges(*backward_, "ghosts of dy");
}

void ConvolutionPlanner::add_backward_filter() {
  const int rank = builder_.rank();
  const Box work = plan_.output_work(rank);
  const bool has_bias = buffers_.db != no_buffer, transposed = plan_.convolution->transposed;
  const bool reads_pixels = !plan_.input_of(work, rank).empty();
  const bool is_first_copy = plan_.output.is_first_copy(rank);
  const bool adds_bias = has_bias && reads_pixels && !transposed && !other_filters_;
  FilterGradientWork node{.weights = weights_,
                          .transposed = transposed,
                          .x = buffers_.x,
                          .dy = buffers_.dy,
                          .dw = buffers_.dw,
                          .db = adds_bias ? buffers_.db : no_buffer,
                          .zeroes_weights = !covers_weights_ || !is_first_copy};
  std::vector<GradientSummand> summands;
  const auto& parts = builder_.plan().convolution_weights[static_cast<std::size_t>(weights_)].parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ConvolutionCall call{.part = static_cast<int>(i)};
    call.target = with_channels(work, parts[i].part.filters);
    call.source = with_channels(builder_[buffers_.x].box, parts[i].part.channels);
    call.computes = !call.target.empty() && reads_pixels && is_first_copy;
    if (call.computes) {
      call.problem = problem_of(plan_, parts[i].part, call.source, call.target);
      const bool x_gaps = !is_dense(call.source, builder_[buffers_.x].box);
      const bool dy_gaps = !is_dense(call.target, builder_[buffers_.dy].box);
      builder_.choose_implementation(call, {.problem = call.problem,
                                            .pass = local::ConvolutionPass::backward_filter,
                                            .type = builder_.activations(),
                                            .input_gaps = transposed ? dy_gaps : x_gaps,
                                            .output_gaps = transposed ? x_gaps : dy_gaps});
      call.tf32 = builder_.uses_tf32(call.backend, builder_.activations());
    }
    if (is_first_copy && !call.target.empty()) {
      summands.push_back({buffers_.dw, parts[i].box, call.target});
      if (adds_bias) summands.push_back({buffers_.db, channels_of(call.target), call.target});
    }
    node.zeroes_weights = node.zeroes_weights || !call.computes;
    node.calls.push_back(std::move(call));
  }
  node.zeroes_bias =
      adds_bias && (node.zeroes_weights || work.extent(Dim::channel) < plan_.output.extents()[Dim::channel]);
  PlanBuilder::Regions reads{{buffers_.dy, work}, {buffers_.x, plan_.input_needed_by_owned(rank)}};
  if (plan_.convolution->overlap == Overlap::blocking && backward_) {
    for (const Exchange& e : backward_->exchanges) {
      reads.insert(reads.end(), e.reads.begin(), e.reads.end());
      reads.insert(reads.end(), e.writes.begin(), e.writes.end());
    }
  }
  const PlanRegion db = builder_.whole(node.db);
  builder_.add("filters", std::move(node), std::move(reads), {builder_.whole(buffers_.dw), db}).summands =
      std::move(summands);
  if (!has_bias || adds_bias) return;
  const Box own = builder_[buffers_.dy].owned;
  const bool sums = is_first_copy && !own.empty();
  PlanNode& bias = builder_.add("bias", BiasGradientWork{buffers_.dy, buffers_.db, own, sums},
                                {builder_.owned(buffers_.dy)}, {builder_.whole(buffers_.db)});
  if (sums) bias.summands.push_back({buffers_.db, channels_of(own), own});
}

void ConvolutionPlanner::add_backward_data() {
  if (buffers_.dx != no_buffer) add_regions(*backward_, false);
}

}  // namespace aloni::nn::detail
