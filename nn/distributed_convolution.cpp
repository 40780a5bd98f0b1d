#include <aloni/nn/distributed_convolution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/detail/convolution_region.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace aloni::nn {

using detail::boxes_of;
using detail::chunk_of;
using detail::outermost;
using detail::pixels;
using detail::with_channels;
using detail::with_range;
using local::ConvolutionPass;
using views::Box;
using views::Dim;
using views::Distribution;

namespace {

/// Defaults of DistributedConvolutionOptions::largest_overhead. Beside messages the interior hides the whole
/// exchange. Where the computing cores copy the ghosts themselves, it hides only the wait for a late neighbour.
constexpr double overhead_beside_messages = 0.05, overhead_beside_copies = 0.01;
/// Cost of copying one element, in multiplications.
constexpr Index multiplications_per_copy = 135;
/// Approximate size of the chunks in which sums and gathered rows travel. They stay in a core's cache from the kernel
/// to the message.
constexpr double chunk_bytes = 1 << 20;
constexpr int most_chunks = 64;
/// Size of a slab of the interior. Messages make progress between slabs.
constexpr double multiplications_per_slab = 100e6;

/// How a rank gets the source of a direction.
enum class Supply : std::uint8_t {
  complete,  ///< no exchange: the rank owns all it needs, or another transfer brings it
  in_place,  ///< ghosts are received in the memory of the source
  faces,     ///< thin copies of the sources of border regions
  copy       ///< a copy of the whole source with its ghosts
};

}  // namespace

template <class T, class Exec>
struct DistributedConvolution<T, Exec>::Implementation {
  using Mem = typename Exec::memory_space;
  using Parameter = parameter_type_t<T>;  // and type of partial sums
  using LocalTensor = Tensor<T, Mem>;
  using SumTensor = Tensor<Parameter, Mem>;
  using Transfer = halo::Transfer<Exec>;
  using Item = halo::TransferItem<T, Mem>;
  using SumItem = halo::TransferItem<Parameter, Mem>;
  static constexpr bool rounds_sums = !std::is_same_v<T, Parameter>;

  /// One direction with its memory, transfers and kernels.
  struct Pass {
    detail::Direction direction;
    LocalTensor source, target;
    Supply supply = Supply::complete;
    bool reduces = false;  ///< several ranks add to the targets that one of them owns
    std::vector<std::pair<Transfer, std::vector<Access>>> exchanges = {};
    /// `interior` reads the owned source, and stale ghosts whose results `border` overwrites.
    std::vector<detail::ConvolutionRegion<T, Exec>> interior = {}, border = {};
    /// As above with a fused ReLU; or empty.
    std::vector<detail::ConvolutionRegion<T, Exec>> interior_relu = {}, border_relu = {};
    std::vector<LocalTensor> border_sources = {};  ///< one per region of `border`
    /// If `reduces`, these replace the others.
    std::vector<detail::ConvolutionRegion<T, Exec, Parameter>> partial = {};
    std::vector<Transfer> reductions = {};  ///< one per region of `partial`
    std::vector<Box> completed = {};        ///< the target box that each of these completes
    std::vector<SumTensor> sums = {};       ///< partial sums, one per chunk in turn
    std::vector<SumTensor> complete = {};   ///< sums over ranks before they are rounded
  };

  comm::Communicator comm;
  LayerPlan plan;
  ConvolutionTensors<T, Exec> tensors;
  DistributedConvolutionOptions options;
  bool is_first_copy;
  detail::ConvolutionKernels<T, Exec> kernels;
  detail::ConvolutionKernels<Parameter, Exec> sum_kernels;
  std::vector<detail::PartWeights<Parameter, Exec>> weights;
  std::optional<Pass> forward, backward;
  struct FilterCall {
    std::shared_ptr<local::LocalConvolution<T, Exec>> local;
    views::LocalView<T, Mem> x, dy;
    Kokkos::View<Parameter*, Mem> db;
  };
  std::vector<FilterCall> filter_calls;  ///< one per element of `weights`; no kernel: no pixel meets another
  bool zeroes_filters = false, zeroes_bias = false;  ///< parts of dw, or of db, are not computed on this rank
  bool filter_adds_bias = false;
  std::optional<local::BiasGradient<T, Exec>> bias_gradient;
  Kokkos::View<Parameter*, Mem> own_b, own_db;  ///< of the filters that the rank owns
  std::uint64_t filters_version = 0, seen_version = 0, refreshed = 0;
  std::size_t bytes = 0;

  Implementation(const comm::Communicator& c, const Queue<Exec>& queue, const LayerPlan& p,
                 const ConvolutionTensors<T, Exec>& t, const DistributedConvolutionOptions& o)
      : comm(c),
        plan(p),
        tensors(t),
        options(o),
        is_first_copy(p.output.is_first_copy(c.rank())),
        kernels(queue.space(), o.backend),
        sum_kernels(queue.space(), o.backend) {
    const bool trains = tensors.dy.allocated();
    prepare_weights(queue.space(), trains);
    forward.emplace(Pass{{plan, false}, tensors.x, tensors.y});
    prepare(queue, *forward, options.input_is_complete ? Supply::complete : Supply::in_place);
    if (!trains) return;
    if (tensors.dx.allocated() || works_on_other_filters()) {
      backward.emplace(Pass{{plan, true}, tensors.dy, tensors.dx});
      prepare(queue, *backward, plan.output_gradient_in_place ? Supply::in_place : Supply::copy);
    }
    prepare_backward_filter(queue);
  }

  int rank() const { return comm.rank(); }
  int ranks() const { return comm.size(); }

  /// True if any rank does. The gradient of the weights then needs the ghosts of dy too.
  bool works_on_other_filters() const {
    return needs_ghosts(plan.output, boxes_of(ranks(), [&](int r) { return plan.output_work(r); }));
  }

  bool works_on_other_channels() const {
    return needs_ghosts(plan.input, boxes_of(ranks(), [&](int r) { return plan.input_work(r); }));
  }

  void check_weights() const {
    const Box& box = tensors.weights;
    if (!contains(box, plan.weights_needed(rank())) || !contains(views::whole(plan.weights()), box)) {
      throw InvalidArgument("aloni::nn::DistributedConvolution", "tensors.weights", views::to_string(box),
                            views::to_string(plan.weights_needed(rank())) + " or a box around it within " +
                                views::to_string(plan.weights()));
    }
    for (int d = 0; d < views::num_dims; ++d) {
      if (static_cast<Index>(tensors.w.extent(d)) == views::extents_of(box).values[d]) continue;
      throw InvalidArgument("aloni::nn::DistributedConvolution", "extents of tensors.w", "not the extents of its box",
                            views::to_string(views::extents_of(box)));
    }
  }

  void prepare_weights(const Exec& exec, bool trains) {
    const ConvolutionPlan& conv = *plan.convolution;
    const bool has_bias = tensors.b.extent(0) > 0;
    check_weights();
    std::size_t covered = 0;
    for (const ConvolutionPart& part : conv.parts(rank())) {
      const Box box = conv.weights_of(part, plan.weights());
      const auto split = [&](const views::LocalView<Parameter, Mem>& v) { return part_of(v, tensors.weights, box); };
      detail::PartWeights<Parameter, Exec> w{.part = part, .w = split(tensors.w)};
      if (trains) w.dw = split(tensors.dw);
      if (!views::is_dense(w.w)) {
        const auto copy_of = [&](const views::LocalView<Parameter, Mem>& v, auto& memory) {
          memory = std::make_shared<Kokkos::View<Parameter*, Mem>>(
              Kokkos::view_alloc(exec, "aloni::nn::" + options.label + "_weights"), v.size());
          bytes += v.size() * sizeof(Parameter);
          return local::dense_tensor<Parameter, Exec>(memory->data(), v.extent(0), v.extent(1), v.extent(2),
                                                      v.extent(3), v.extent(4));
        };
        w.original_w = w.w;
        w.original_dw = w.dw;
        w.w = copy_of(w.original_w, w.memory);
        if (trains) w.dw = copy_of(w.original_dw, w.gradient_memory);
      }
      covered += w.w.size();
      weights.push_back(w);
    }
    zeroes_filters = covered < tensors.w.size();
    const Box mine = plan.output.owned(rank());
    const auto own = [&](const Kokkos::View<Parameter*, Mem>& v) {
      return Kokkos::subview(v, Kokkos::make_pair(mine.lower(Dim::channel), mine.upper(Dim::channel)));
    };
    if (!has_bias) return;
    own_b = own(tensors.b);
    if (trains) own_db = own(tensors.db);
  }

  // --- set-up of one direction ---

  Index local_multiplications_per_pixel() const { return plan.weights().size() / plan.convolution->groups; }

  void prepare(const Queue<Exec>& queue, Pass& pass, Supply supply) {
    const detail::Direction& d = pass.direction;
    const std::vector<Box> needed = boxes_of(ranks(), [&](int r) {
      // The gradient of the weights needs dy of all filters that the rank multiplies.
      const Box wanted = d.needed(r);
      return d.backward && works_on_other_filters() ? hull(wanted, plan.output_work(r)) : wanted;
    });
    const std::vector<Box> work = boxes_of(ranks(), [&](int r) { return d.work(r); });
    const bool exchanges = needs_ghosts(d.source(), needed);
    pass.reduces = d.backward ? works_on_other_channels() : works_on_other_filters();
    const bool gathers = std::ranges::any_of(std::vector<int>(order()), [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      const Box own = d.source().owned(r);
      return !needed[i].empty() && (needed[i].lower(Dim::channel) < own.lower(Dim::channel) ||
                                    needed[i].upper(Dim::channel) > own.upper(Dim::channel));
    });
    pass.supply = exchanges ? supply : Supply::complete;
    const bool computes = !d.backward || tensors.dx.allocated();
    const int chunks =
        pass.reduces || (gathers && pass.supply != Supply::complete) ? count_chunks(pass.reduces, work, needed) : 1;
    if (pass.reduces || gathers) {
      if (pass.supply == Supply::in_place) exchange_in_chunks(queue, pass, needed, gathers ? chunks : 1);
      if (pass.supply == Supply::copy) take_copy(queue, pass, needed);
      if (computes) compute_in_chunks(queue, pass, work, chunks);
      return;
    }
    const Box mine = work[static_cast<std::size_t>(rank())];
    std::vector<Box> interior, border{mine};
    // All ranks must exchange in the same way, so the choice uses only data that all ranks have.
    if (pass.supply == Supply::copy && copies_faces(d, work)) pass.supply = Supply::faces;
    if (pass.supply == Supply::in_place) exchange_in_chunks(queue, pass, needed, 1);
    if (pass.supply == Supply::faces || computes_interior_first(pass, mine))
      std::tie(interior, border) = d.interior_first(rank(), mine);
    const LocalTensor source = pass.source;
    if (pass.supply == Supply::copy) take_copy(queue, pass, needed);
    if (pass.supply == Supply::faces) {
      add_faces(queue, pass, work, border);
      border.clear();
    }
    for (const Box& box : interior) {
      const int slabs = waits_for_the_network(pass) ? count_slabs(box) : 1;
      for (int k = 0; k < slabs; ++k)
        add_region(pass, Region::interior, chunk_of(box, slab_dimension(box), k, slabs), source);
    }
    for (const Box& box : border) add_region(pass, Region::border, box, pass.source);
  }

  std::vector<int> order() const {
    std::vector<int> all(static_cast<std::size_t>(ranks()));
    for (int r = 0; r < ranks(); ++r) all[static_cast<std::size_t>(r)] = r;
    return all;
  }

  enum class Region : std::uint8_t { interior, border };

  /// @pre not pass.reduces
  void add_region(Pass& pass, Region kind, const Box& box, const LocalTensor& source) {
    const auto bias = pass.direction.backward ? Kokkos::View<Parameter*, Mem>{} : tensors.b;
    (kind == Region::interior ? pass.interior : pass.border)
        .emplace_back(pass.direction, rank(), box, source, pass.target, weights, bias, kernels);
    if (kind == Region::border) pass.border_sources.push_back(source);
    if (pass.direction.backward || !fuses_relu(pass)) return;
    (kind == Region::interior ? pass.interior_relu : pass.border_relu)
        .emplace_back(pass.direction, rank(), box, source, pass.target, weights, bias, kernels, true);
  }

  bool fuses_relu(const Pass& pass) const { return options.relu && !pass.reduces && !plan.convolution->transposed; }

  /// Equal on all ranks.
  int count_chunks(bool reduces, const std::vector<Box>& work, const std::vector<Box>& needed) const {
    double largest = 0;
    for (int r = 0; r < ranks(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      largest = std::max(largest, reduces ? static_cast<double>(work[i].size()) * sizeof(Parameter)
                                          : static_cast<double>(needed[i].size()) * sizeof(T));
    }
    return std::clamp(static_cast<int>(largest / chunk_bytes), 1, most_chunks);
  }

  /// Receives ghosts, including channels of other ranks, in the memory of the source.
  void exchange_in_chunks(const Queue<Exec>& queue, Pass& pass, const std::vector<Box>& needed, int chunks) {
    const Distribution& from = pass.direction.source();
    for (int k = 0; k < chunks; ++k) {
      const auto part = [&](int r) {
        const Box& all = needed[static_cast<std::size_t>(r)];
        return all.empty() ? all : chunk_of(all, outermost(all), k, chunks);
      };
      Transfer transfer(
          comm, queue,
          {Item::in_place(pass.source.ref(), halo::plan_halo(from, part, halo::BoundaryConditions{}, rank()))},
          {.label = options.label + (pass.direction.backward ? "_dy" : "_x")});
      std::vector<Access> accesses{reads(pass.source)};
      const Box mine = part(rank());
      const Box own = intersect(pass.source.owned, mine);
      if (own.empty()) {
        accesses.push_back(writes(pass.source, mine));
      } else {
        for (const Box& ghosts : difference(mine, own)) accesses.push_back(writes(pass.source, ghosts));
      }
      bytes += transfer.buffer_bytes();
      pass.exchanges.emplace_back(std::move(transfer), std::move(accesses));
    }
  }

  void compute_in_chunks(const Queue<Exec>& queue, Pass& pass, const std::vector<Box>& work, int chunks) {
    const detail::Direction& d = pass.direction;
    // A chunk has the same rows in a rank's work and in its owned box, whatever the channels.
    const auto rows = [&](int r, int k) {
      const Box all = with_channels(d.target().owned(r), {0, 1});
      return chunk_of(all, outermost(all), k, chunks);
    };
    const auto part = [&](int r, int k) {
      const Box& all = work[static_cast<std::size_t>(r)];
      return with_channels(rows(r, k), {all.lower(Dim::channel), all.upper(Dim::channel)});
    };
    if (!pass.reduces) {
      for (int k = 0; k < chunks; ++k) add_region(pass, Region::border, part(rank(), k), pass.source);
      return;
    }
    const Box& owned = pass.target.owned;
    const auto own = [&](int k) {
      return with_channels(rows(rank(), k), {owned.lower(Dim::channel), owned.upper(Dim::channel)});
    };
    Index largest = 0, largest_own = 0;
    for (int k = 0; k < chunks; ++k) {
      largest = std::max(largest, part(rank(), k).size());
      largest_own = std::max(largest_own, own(k).size());
    }
    for (int i = 0; i < std::min(chunks, 2); ++i) {
      pass.sums.push_back(allocate_sums(queue, "_partial_sums", largest));
      if (rounds_sums) pass.complete.push_back(allocate_sums(queue, "_sums", largest_own));
    }
    for (int k = 0; k < chunks; ++k) {
      SumTensor sums = pass.sums[static_cast<std::size_t>(k % 2)];
      sums.owned = sums.box = part(rank(), k);
      pass.completed.push_back(own(k));
      pass.reductions.emplace_back(
          comm, queue,
          std::vector<halo::AnyTransferItem<Mem>>{SumItem::between(
              place_of_sums(pass, k), sums.ref(),
              halo::plan_redistribution(
                  d.target(), d.target(), [&](int r) { return part(r, k); }, halo::BoundaryConditions{}, rank()))},
          halo::TransferOptions{.label = options.label + "_sums"});
      bytes += pass.reductions.back().buffer_bytes();
      pass.partial.emplace_back(pass.direction, rank(), sums.box, pass.source, sums, weights,
                                Kokkos::View<Parameter*, Mem>{}, sum_kernels);
    }
    copy_sources(queue, pass);
  }

  SumTensor allocate_sums(const Queue<Exec>& queue, const char* what, Index elements) {
    const Box any{{0, 0, 0, 0, 0}, {1, 1, 1, 1, elements}};
    bytes += static_cast<std::size_t>(elements) * sizeof(Parameter);
    return allocate_tensor<Parameter>(comm, queue.space(), "aloni::nn::" + options.label + what, any, any);
  }

  /// Memory for the sums over ranks of chunk k: in the target, or beside it if they are rounded afterwards.
  halo::TensorRef<Parameter, Mem> place_of_sums(const Pass& pass, int k) const {
    const Box& own = pass.completed[static_cast<std::size_t>(k)];
    if constexpr (rounds_sums) {
      return complete_sums(pass, static_cast<std::size_t>(k)).ref();
    } else {
      halo::TensorRef<T, Mem> result = pass.target.ref();
      result.data = pass.target.part(own);
      result.box = own;
      return result;
    }
  }
  static SumTensor complete_sums(const Pass& pass, std::size_t k) {
    SumTensor sums = pass.complete[k % 2];
    sums.owned = sums.box = pass.completed[k];
    return sums;
  }

  /// Allocates the copies from which partial sums are computed, if these do not read the source.
  void copy_sources(const Queue<Exec>& queue, Pass& pass) {
    std::size_t largest = 0;
    for (const auto& region : pass.partial) largest = std::max(largest, region.copied());
    const Kokkos::View<Parameter*, Mem> memory(
        Kokkos::view_alloc(queue.space(), Kokkos::WithoutInitializing, "aloni::nn::" + options.label + "_copy"),
        largest);
    bytes += largest * sizeof(Parameter);
    for (auto& region : pass.partial) region.use_copy(memory);
  }

  /// Whether copies of faces cost less than a copy of the whole source. Equal on all ranks.
  bool copies_faces(const detail::Direction& d, const std::vector<Box>& work) const {
    if (plan.convolution->overlap == Overlap::blocking) return false;
    double faces = 0;
    for (int r = 0; r < ranks(); ++r) faces = std::max(faces, d.overhead(r, work[static_cast<std::size_t>(r)]));
    const double copy = static_cast<double>(multiplications_per_copy * plan.output.extents()[Dim::channel]) /
                        static_cast<double>(std::max<Index>(1, local_multiplications_per_pixel()));
    return faces < copy;
  }

  /// Whether messages need this rank's calls to make progress. Then the interior is computed in slabs, with progress
  /// between them.
  bool waits_for_the_network(const Pass& pass) const { return !comm.has_progress_thread() && uses_the_network(pass); }

  bool uses_the_network(const Pass& pass) const {
    for (const auto& exchange : pass.exchanges) {
      for (const halo::PeerTransfer& peer : exchange.first.peers()) {
        const bool within_node = peer.path == halo::Path::view_to_view || peer.path == halo::Path::packed_shared ||
                                 peer.transport == "shared" || peer.transport == "self";
        if (!within_node) return true;
      }
    }
    return false;
  }

  /// Whether to compute the interior in calls of its own while ghosts travel. @pre pass.exchanges is filled
  bool computes_interior_first(const Pass& pass, const Box& work) const {
    if (pass.supply != Supply::in_place || plan.convolution->overlap == Overlap::blocking) return false;
    constexpr bool is_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;
    const double most = is_host && !uses_the_network(pass) ? overhead_beside_copies : overhead_beside_messages;
    return pass.direction.overhead(rank(), work) <= options.largest_overhead.value_or(most);
  }

  /// The spatial dimension in which chunks of a box are contiguous, sample by sample.
  static Dim slab_dimension(const Box& box) {
    for (const Dim d : views::spatial_dims)
      if (box.extent(d) > 1) return d;
    return Dim::width;
  }

  /// Number of slabs. A slab takes about a millisecond, so progress between slabs costs nothing.
  int count_slabs(const Box& box) const {
    const double work = static_cast<double>(pixels(box)) * static_cast<double>(local_multiplications_per_pixel());
    const Index extent = box.extent(slab_dimension(box));
    return static_cast<int>(
        std::clamp<double>(work / multiplications_per_slab, 1, static_cast<double>(std::min<Index>(extent, 16))));
  }

  LocalTensor make_copy(const Queue<Exec>& queue, const Box& box) {
    bytes += static_cast<std::size_t>(box.size()) * sizeof(T);
    return allocate_tensor<T>(comm, queue.space(), "aloni::nn::" + options.label + "_with_ghosts", box, box);
  }

  /// Adds one transfer that fills copies of the source. `boxes`: for each copy the box of every rank.
  void add_copies(const Queue<Exec>& queue, Pass& pass, const std::vector<LocalTensor>& copies,
                  const std::vector<std::vector<Box>>& boxes) {
    const Distribution& from = pass.direction.source();
    std::vector<halo::AnyTransferItem<Mem>> items;
    std::vector<Access> accesses{reads(pass.source)};
    for (std::size_t i = 0; i < copies.size(); ++i) {
      items.push_back(Item::between(pass.source.ref(), copies[i].ref(),
                                    halo::plan_redistribution(
                                        from, from, [&](int r) { return boxes[i][static_cast<std::size_t>(r)]; },
                                        halo::BoundaryConditions{}, rank())));
      accesses.push_back(writes(copies[i], copies[i].box));
    }
    Transfer transfer(comm, queue, std::move(items), {.label = options.label + "_dy"});
    bytes += transfer.buffer_bytes();
    pass.exchanges.emplace_back(std::move(transfer), std::move(accesses));
  }

  /// Replaces the source of the direction by a copy with ghosts.
  void take_copy(const Queue<Exec>& queue, Pass& pass, const std::vector<Box>& needed) {
    const LocalTensor copy = make_copy(queue, needed[static_cast<std::size_t>(rank())]);
    add_copies(queue, pass, {copy}, {needed});
    pass.source = copy;
  }

  /// Adds for each border region a copy of its sources. All ranks have the same number of copies; some are empty.
  void add_faces(const Queue<Exec>& queue, Pass& pass, const std::vector<Box>& work, const std::vector<Box>& border) {
    const detail::Direction& d = pass.direction;
    std::vector<std::vector<Box>> regions;  // by rank
    std::size_t most = 0;
    for (int r = 0; r < ranks(); ++r) {
      regions.push_back(d.interior_first(r, work[static_cast<std::size_t>(r)]).second);
      most = std::max(most, regions.back().size());
    }
    std::vector<LocalTensor> copies;
    std::vector<std::vector<Box>> boxes;
    for (std::size_t i = 0; i < most; ++i) {
      boxes.push_back(boxes_of(ranks(), [&](int r) {
        const auto& mine = regions[static_cast<std::size_t>(r)];
        return i < mine.size() ? d.needed_for(mine[i], r) : Box{};
      }));
      copies.push_back(make_copy(queue, boxes.back()[static_cast<std::size_t>(rank())]));
    }
    add_copies(queue, pass, copies, boxes);
    for (std::size_t i = 0; i < border.size(); ++i) {
      add_region(pass, Region::border, border[i], copies[i]);
    }
  }

  void prepare_backward_filter(const Queue<Exec>& queue) {
    const Box work = plan.output_work(rank());
    const bool has_bias = tensors.db.extent(0) > 0;
    const bool reads_pixels = !plan.input_of(work, rank()).empty();
    filter_adds_bias = has_bias && reads_pixels && !plan.convolution->transposed && !works_on_other_filters();
    for (const detail::PartWeights<Parameter, Exec>& w : weights) {
      const Box y = with_channels(work, w.part.filters);
      const Box x = with_channels(tensors.x.box, w.part.channels);
      FilterCall call;
      if (filter_adds_bias)
        call.db = Kokkos::subview(tensors.db, Kokkos::make_pair(w.part.filters.lo, w.part.filters.hi));
      if (!y.empty() && reads_pixels && is_first_copy) {
        call.x = tensors.x.part(x);
        call.dy = tensors.dy.part(y);
        const bool mirrored = plan.convolution->transposed;
        call.local = kernels.of(detail::problem_of(plan, w.part, x, y), ConvolutionPass::backward_filter,
                                mirrored ? call.dy : call.x, mirrored ? call.x : call.dy, nullptr);
      }
      filter_calls.push_back(call);
    }
    if (has_bias && !filter_adds_bias) {
      const auto e = views::extents_of(tensors.dy.owned).values;
      bias_gradient.emplace(queue.space(), e[0], e[1], e[2], e[4]);
    }
    zeroes_filters = zeroes_filters || !is_first_copy;
    for (const FilterCall& call : filter_calls) zeroes_filters = zeroes_filters || !call.local;
    zeroes_bias =
        filter_adds_bias && (zeroes_filters || work.extent(Dim::channel) < plan.output.extents()[Dim::channel]);
  }

  // --- nodes ---

  static void add_exchanges(Step<Exec>& step, const Pass& pass, const std::string& what) {
    for (const auto& [transfer, accesses] : pass.exchanges) step.transfer(what, accesses, transfer);
  }

  Access writes_gradient() const { return {tensors.dw.data(), {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, true}; }

  /// Copies weights that are not dense, and gives the kernels a new filter version. Kernels reorder their weights
  /// once per version, although one kernel may compute many regions.
  void add_weights(Step<Exec>& step) {
    step.kernel("weights",
                {{tensors.w.data(), {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}}, false}, writes(kernels), writes(sum_kernels)},
                [this](const Exec& exec) {
                  if (filters_version != 0 && filters_version == seen_version) return;
                  seen_version = filters_version;
                  kernels.set_filter_version(++refreshed);
                  sum_kernels.set_filter_version(refreshed);
                  for (const detail::PartWeights<Parameter, Exec>& w : weights)
                    if (w.copied()) local::copy<Parameter, Exec>(exec, w.original_w, w.w);
                });
  }

  void add_regions(Step<Exec>& step, Pass& pass, bool relu = false) {
    add_weights(step);
    for (const detail::ConvolutionRegion<T, Exec>& region : relu ? pass.interior_relu : pass.interior) {
      // The interior also reads stale ghosts; the border overwrites the results.
      std::vector<Access> accesses{reads(pass.source), writes(pass.target, region.box())};
      accesses.push_back(reads(kernels));
      step.kernel("interior", std::move(accesses), [&region](const Exec& exec) { region.run(exec); });
    }
    for (std::size_t i = 0; i < pass.border.size(); ++i) {
      const detail::ConvolutionRegion<T, Exec>& region = (relu ? pass.border_relu : pass.border)[i];
      std::vector<Access> accesses{reads(pass.border_sources[i], region.read())};
      accesses.push_back(reads(kernels));
      accesses.push_back(writes(pass.target, region.box()));
      step.kernel(pass.interior.empty() ? "" : "border", std::move(accesses),
                  [&region](const Exec& exec) { region.run(exec); });
    }
    add_partial_sums(step, pass);
  }

  void add_partial_sums(Step<Exec>& step, const Pass& pass) {
    for (std::size_t i = 0; i < pass.partial.size(); ++i) {
      const detail::ConvolutionRegion<T, Exec, Parameter>& region = pass.partial[i];
      // Chunks use two buffers in turn, so an access names the whole buffer.
      const SumTensor& sums = pass.sums[i % 2];
      std::vector<Access> accesses{reads(pass.source, region.read()), reads(sum_kernels)};
      accesses.push_back(writes(sums));
      if (rounds_sums) accesses.push_back(writes(pass.partial));  // the copy of the source
      step.kernel("partial sums", std::move(accesses), [&region](const Exec& exec) { region.run(exec); });
      if constexpr (rounds_sums) {
        step.transfer("sums over ranks", {reads(sums), writes(pass.complete[i % 2])}, pass.reductions[i], true);
        add_rounding(step, pass, i);
      } else {
        step.transfer("sums over ranks", {reads(sums), writes(pass.target, pass.completed[i])}, pass.reductions[i],
                      true);
      }
    }
  }

  /// Adds the bias before rounding, so that there is one rounding.
  void add_rounding(Step<Exec>& step, const Pass& pass, std::size_t i) {
    const Box& box = pass.completed[i];
    if (box.empty()) return;
    std::vector<Access> accesses{writes(pass.complete[i % 2]), writes(pass.target, box)};
    const bool adds_bias = !pass.direction.backward && tensors.b.extent(0) > 0;
    if (adds_bias) accesses.push_back(reads(tensors.b));
    step.kernel(
        "round", std::move(accesses),
        [b = own_b, adds_bias, sums = complete_sums(pass, i).whole(), to = pass.target.part(box)](const Exec& exec) {
          if (adds_bias) local::add_bias<Parameter, Exec>(exec, b, sums);
          local::convert<T, Parameter, Exec>(exec, sums, to);
        });
  }

  void add_forward(Step<Exec>& step, bool relu) {
    add_regions(step, *forward, relu);
    if (!forward->reduces || rounds_sums || tensors.b.extent(0) == 0 || tensors.y.owned.empty()) return;
    step.kernel("bias", {reads(tensors.b), writes(tensors.y)},
                [b = own_b, y = tensors.y.owned_part()](const Exec& exec) { local::add_bias<T, Exec>(exec, b, y); });
  }

  void add_backward_filter(Step<Exec>& step) {
    std::vector<Access> accesses{writes_gradient()};
    const Box work = plan.output_work(rank());
    accesses.push_back(reads(tensors.dy, work));
    accesses.push_back(reads(tensors.x, tensors.x.box));
    if (filter_adds_bias) accesses.push_back(writes(tensors.db));
    if (plan.convolution->overlap == Overlap::blocking && backward) {
      for (const auto& exchange : backward->exchanges) {
        for (Access access : exchange.second) {
          access.writes = false;
          accesses.push_back(access);
        }
      }
    }
    step.kernel("filters", std::move(accesses), [this](const Exec& exec) { run_backward_filter(exec); });
    if (tensors.db.extent(0) == 0 || filter_adds_bias) return;
    step.kernel("bias", {reads(tensors.dy), writes(tensors.db)}, [this](const Exec& exec) {
      Kokkos::deep_copy(exec, tensors.db, Parameter(0));
      if (is_first_copy && !tensors.dy.owned.empty()) (*bias_gradient)(exec, tensors.dy.owned_part(), own_db);
    });
  }

  void run_backward_filter(const Exec& exec) {
    if (zeroes_filters) local::fill<Parameter, Exec>(exec, Parameter(0), tensors.dw);
    if (zeroes_bias) Kokkos::deep_copy(exec, tensors.db, Parameter(0));
    for (std::size_t i = 0; i < filter_calls.size(); ++i) {
      const FilterCall& call = filter_calls[i];
      const detail::PartWeights<Parameter, Exec>& w = weights[i];
      if (!call.local) continue;
      if (plan.convolution->transposed) {
        call.local->backward_filter(exec, call.dy, call.x, w.dw, Kokkos::View<Parameter*, Mem>{});
      } else {
        call.local->backward_filter(exec, call.x, call.dy, w.dw, call.db);
      }
      if (w.copied()) local::copy<Parameter, Exec>(exec, w.dw, w.original_dw);
    }
  }
};

template <class T, class Exec>
DistributedConvolution<T, Exec>::DistributedConvolution(const comm::Communicator& comm, const Queue<Exec>& queue,
                                                        const LayerPlan& plan,
                                                        const ConvolutionTensors<T, Exec>& tensors,
                                                        const DistributedConvolutionOptions& options)
    : implementation_(std::make_unique<Implementation>(comm, queue, plan, tensors, options)) {}

template <class T, class Exec>
DistributedConvolution<T, Exec>::~DistributedConvolution() = default;

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_input_exchange(Step<Exec>& step) {
  implementation_->add_exchanges(step, *implementation_->forward, "ghosts of x");
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_forward(Step<Exec>& step, bool relu) {
  implementation_->add_forward(step, relu);
}

template <class T, class Exec>
bool DistributedConvolution<T, Exec>::fuses_relu() const {
  return implementation_->fuses_relu(*implementation_->forward);
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_gradient_exchange(Step<Exec>& step) {
  if (implementation_->backward) implementation_->add_exchanges(step, *implementation_->backward, "ghosts of dy");
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_backward_filter(Step<Exec>& step) {
  implementation_->add_backward_filter(step);
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::add_backward_data(Step<Exec>& step) {
  if (implementation_->tensors.dx.allocated()) implementation_->add_regions(step, *implementation_->backward);
}

template <class T, class Exec>
void DistributedConvolution<T, Exec>::set_filter_version(std::uint64_t version) {
  implementation_->filters_version = version;
}

template <class T, class Exec>
std::size_t DistributedConvolution<T, Exec>::workspace_bytes() const {
  return implementation_->bytes + implementation_->kernels.bytes() + implementation_->sum_kernels.bytes();
}

#define INSTANTIATE(T, Exec) template class DistributedConvolution<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
