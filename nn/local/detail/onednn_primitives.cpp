#include <aloni/nn/local/detail/onednn_primitives.hpp>

#include <aloni/nn/local/detail/filter_reorder.hpp>

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aloni::nn::local::detail {

namespace {

using dnnl::memory;

/// One engine for all primitives, so that they can share memory.
const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool is_flat(const PaddedProblem& p) { return p.input[0] == 1 && p.output[0] == 1 && p.kernel[0] == 1; }

/// Spatial values for oneDNN: two for flat problems, three with depth.
memory::dims spatial(const PaddedProblem& p, const std::array<Index, 3>& values, Index minus = 0) {
  memory::dims dims;
  for (int s = is_flat(p) ? 1 : 0; s < 3; ++s) dims.push_back(values[s] - minus);
  return dims;
}

memory::dims dims(const PaddedProblem& p, Index outer, Index inner, const std::array<Index, 3>& values) {
  memory::dims all{outer, inner};
  for (Index v : spatial(p, values)) all.push_back(v);
  return all;
}

/// Extents of the filters. With groups, oneDNN has a dimension for groups before the filters; the layout in memory is
/// the same.
memory::dims filter_dims(const PaddedProblem& p) {
  if (p.groups == 1) return dims(p, p.filters, p.channels, p.kernel);
  memory::dims all = dims(p, p.filters / p.groups, p.channels / p.groups, p.kernel);
  all.insert(all.begin(), p.groups);
  return all;
}

memory::format_tag plain_filters_tag(const PaddedProblem& p) {
  if (p.groups == 1) return is_flat(p) ? memory::format_tag::ohwi : memory::format_tag::odhwi;
  return is_flat(p) ? memory::format_tag::gohwi : memory::format_tag::godhwi;
}

/// Descriptions of the arrays of a problem: dense channels last; weights and their gradient in the order that oneDNN
/// chooses.
struct Shapes {
  Shapes(const PaddedProblem& p, OnednnActivations activations)
      : type(activations == OnednnActivations::float32 ? memory::data_type::f32 : memory::data_type::bf16),
        activations_tag(is_flat(p) ? memory::format_tag::nhwc : memory::format_tag::ndhwc),
        x(dims(p, p.samples, p.channels, p.input), type, activations_tag),
        y(dims(p, p.samples, p.filters, p.output), type, activations_tag),
        w(filter_dims(p), type, memory::format_tag::any),
        dw(filter_dims(p), memory::data_type::f32, memory::format_tag::any),
        plain_w(filter_dims(p), memory::data_type::f32, plain_filters_tag(p)),
        bias({p.filters}, memory::data_type::f32, memory::format_tag::a),
        stride(spatial(p, p.stride)),
        dilation(spatial(p, p.dilation, 1)),
        before(spatial(p, p.padding_before)),
        after(spatial(p, p.padding_after)) {
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  }
  memory::data_type type;
  memory::format_tag activations_tag;
  memory::desc x, y, w, dw, plain_w, bias;
  memory::dims stride, dilation, before, after;
  dnnl::primitive_attr attributes;
};

// Never Winograd: its transformations are not exact on small integers.
constexpr auto direct = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc describe_forward(const Shapes& s, bool relu = false) {
  dnnl::primitive_attr attributes = s.attributes;
  if (relu) {
    dnnl::post_ops behind;
    behind.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attributes.set_post_ops(behind);
  }
  return {{dnnl::prop_kind::forward_training, direct, s.x, s.w, s.bias, s.y, s.stride, s.dilation, s.before, s.after},
          attributes,
          cpu()};
}

dnnl::convolution_backward_data::primitive_desc describe_backward_data(const Shapes& s) {
  return {{direct, s.x, s.w, s.y, s.stride, s.dilation, s.before, s.after}, s.attributes, cpu(), describe_forward(s)};
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_filter(const Shapes& s) {
  return {{direct, s.x, s.dw, s.bias, s.y, s.stride, s.dilation, s.before, s.after},
          s.attributes,
          cpu(),
          describe_forward(s)};
}

std::string implementation_of(const PaddedProblem& p, ConvolutionPass pass, OnednnActivations activations) {
  const Shapes shapes(p, activations);
  switch (pass) {
    case ConvolutionPass::forward:
      return describe_forward(shapes).impl_info_str();
    case ConvolutionPass::backward_data:
      return describe_backward_data(shapes).impl_info_str();
    case ConvolutionPass::backward_filter:
      return describe_backward_filter(shapes).impl_info_str();
  }
  return {};
}

/// Whether the kernel is compiled code, not oneDNN's reference kernel.
bool is_compiled(const std::string& implementation) {
  return implementation.find("jit") != std::string::npos || implementation.find("brg") != std::string::npos;
}

memory unbound(const memory::desc& desc) { return {desc, cpu(), DNNL_MEMORY_NONE}; }

/// The order of filters of float without groups, if it is one of blocks that filter_reorder.hpp can describe.
std::optional<FilterOrderInMemory> order_in_memory(const memory::desc& desc, const PaddedProblem& p) {
  const dnnl_memory_desc_t& d = desc.data;
  const auto& blocks = d.format_desc.blocking;
  const int spatial_dims = is_flat(p) ? 2 : 3;
  if (p.groups != 1 || d.ndims != 2 + spatial_dims || d.format_kind != dnnl_blocked || d.data_type != dnnl_f32 ||
      d.offset0 != 0 || d.extra.flags != 0 || d.padded_dims[1] != d.dims[1])
    return std::nullopt;
  FilterOrderInMemory order{.filters = d.dims[0],
                            .channels = d.dims[1],
                            .padded_filters = d.padded_dims[0],
                            .filter_block = d.padded_dims[0],
                            .channel_block = d.dims[1],
                            .filter = blocks.strides[0],
                            .channel = blocks.strides[1]};
  Index step = 1;
  bool has_block[2] = {};
  for (int k = blocks.inner_nblks - 1; k >= 0; --k) {
    const auto dimension = blocks.inner_idxs[k];
    if (dimension > 1 || has_block[dimension]) return std::nullopt;
    has_block[dimension] = true;
    (dimension == 0 ? order.filter_block : order.channel_block) = blocks.inner_blks[k];
    (dimension == 0 ? order.filter : order.channel) = step;
    (dimension == 0 ? order.filter_blocks : order.channel_blocks) = blocks.strides[dimension];
    step *= blocks.inner_blks[k];
  }
  const std::array<Index, 3> extents{is_flat(p) ? 1 : d.dims[2], d.dims[d.ndims - 2], d.dims[d.ndims - 1]};
  const std::array<Index, 3> steps{is_flat(p) ? 0 : blocks.strides[2], blocks.strides[d.ndims - 2],
                                   blocks.strides[d.ndims - 1]};
  for (Index a = 0; a < extents[0]; ++a)
    for (Index b = 0; b < extents[1]; ++b)
      for (Index c = 0; c < extents[2]; ++c) order.taps.push_back(a * steps[0] + b * steps[1] + c * steps[2]);
  return order;
}

Index taps_of(const PaddedProblem& p) { return p.kernel[0] * p.kernel[1] * p.kernel[2]; }

/// A copy between two orders of filters by the loops of this library.
class TileReorder {
 public:
  TileReorder() = default;
  TileReorder(std::optional<FilterOrderInMemory> from, std::optional<FilterOrderInMemory> to) {
    if (!from || !to || !can_reorder(*from, *to)) return;
    from_ = std::move(*from);
    to_ = std::move(*to);
  }
  bool works() const { return !to_.taps.empty(); }
  void run(const OnednnConvolution::ShareOut& share_out, const void* source, void* target) const {
    share_out(reorder_parts(to_), [&](Index part) {
      reorder(from_, static_cast<const float*>(source), to_, static_cast<float*>(target), part);
    });
  }

 private:
  FilterOrderInMemory from_, to_;
};

/// Filters in the order of a primitive, with the address and version of their source.
class FilterOrder {
 public:
  /// `to`: the order. `flipped`: filters flipped, with one reorder for each tap; then `to` describes arrays of
  /// flipped_problem(p). `shared`: the place of the filters; null: they have memory of their own.
  FilterOrder(const PaddedProblem& p, const memory::desc& to, bool flipped, Scratch::SharedFilters* shared)
      : ordered(shared ? unbound(to) : memory(to, cpu())), shared_(shared), flipped_(flipped) {
    if (shared) shared->memory.reserve(to.get_size());
    tiles_ = TileReorder(
        flipped ? flipped_order(p.filters, taps_of(p), p.channels) : plain_order(p.filters, taps_of(p), p.channels),
        order_in_memory(to, p));
    if (!flipped) {
      parts_.emplace_back(Shapes(p, OnednnActivations::float32).plain_w, to, 0);
      return;
    }
    if (!shared) std::memset(ordered.get_data_handle(), 0, to.get_size());  // padding of blocks stays zero
    const Index taps = taps_of(p);
    const memory::dims one = dims(p, p.channels, p.filters, {1, 1, 1});
    memory::dims strides(one.size(), 1);
    strides[1] = taps * p.channels;
    const memory::desc from(one, memory::data_type::f32, strides);
    for (Index tap = 0; tap < taps; ++tap) {
      const std::array<Index, 3> k{tap / (p.kernel[1] * p.kernel[2]), tap / p.kernel[2] % p.kernel[1],
                                   tap % p.kernel[2]};
      const std::array<Index, 3> opposite{p.kernel[0] - 1 - k[0], p.kernel[1] - 1 - k[1], p.kernel[2] - 1 - k[2]};
      parts_.emplace_back(from, to.submemory_desc(one, dims(p, 0, 0, opposite)), tap * p.channels);
    }
  }

  bool is(const PaddedProblem& p, const memory::desc& to, bool flipped) const {
    return flipped == flipped_ && ordered.get_desc() == to &&
           (flipped || parts_.front().from.get_desc() == Shapes(p, OnednnActivations::float32).plain_w);
  }

  void take(dnnl::stream& stream, const OnednnConvolution::ShareOut& share_out, const float* filters,
            std::uint64_t version) {
    const bool is_there = !shared_ || shared_->order == this;
    const bool known = is_there && version != 0 && version == version_ && filters == filters_;
    filters_ = filters, version_ = version;
    if (shared_) {
      shared_->order = this;
      ordered.set_data_handle(shared_->memory.data());
    }
    if (known) return;
    if (tiles_.works()) return tiles_.run(share_out, filters, ordered.get_data_handle());
    if (shared_ && flipped_) std::memset(ordered.get_data_handle(), 0, ordered.get_desc().get_size());
    for (Part& part : parts_) {
      part.from.set_data_handle(const_cast<float*>(filters) + part.first);
      part.to.set_data_handle(ordered.get_data_handle());
      part.reorder.execute(stream, part.from, part.to);
    }
  }

  memory ordered;

 private:
  struct Part {
    Part(const memory::desc& source, const memory::desc& target, Index first)
        : from(unbound(source)), to(unbound(target)), reorder(from, to), first(first) {}
    memory from, to;
    dnnl::reorder reorder;
    Index first;  // index of its first value in the source
  };

  Scratch::SharedFilters* shared_;  // the scratch memory of the store keeps it alive
  bool flipped_;
  TileReorder tiles_;
  std::vector<Part> parts_;  // for orders that have no tiles
  const float* filters_ = nullptr;
  std::uint64_t version_ = 0;  // 0: unknown
};

class OnednnFilterOrders final : public FilterOrders {
 public:
  using FilterOrders::FilterOrders;
  bool has(const PaddedProblem& p, const memory::desc& to, bool flipped) const {
    return std::any_of(all_.begin(), all_.end(), [&](const auto& known) { return known->is(p, to, flipped); });
  }
  std::shared_ptr<FilterOrder> of(const PaddedProblem& p, const memory::desc& to, bool flipped) {
    for (const auto& known : all_)
      if (known->is(p, to, flipped)) return known;
    return all_.emplace_back(std::make_shared<FilterOrder>(p, to, flipped, scratch()->shared_filters()));
  }
  std::size_t bytes() const override {
    std::size_t sum = FilterOrders::bytes();
    if (scratch()->shared_filters()) return sum;
    for (const auto& known : all_) sum += known->ordered.get_desc().get_size();
    return sum;
  }

 private:
  std::vector<std::shared_ptr<FilterOrder>> all_;
};

/// One pass: the primitive, its arguments, and the reordering of the weights before it, or of their gradient after it.
struct Pass {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
  std::shared_ptr<FilterOrder> order;  // of the weights; null: they are not reordered
  memory plain_dw, dw;
  dnnl::reorder reorder;
  TileReorder tiles;
  bool reorders = false;
  Scratch::SharedFilters* shared = nullptr;  // the place of the gradient; null: it lies behind oneDNN's scratch memory
  std::string implementation;
  std::size_t gradient_at = 0, scratch_bytes = 0;  ///< in the scratch memory: oneDNN's own, then the gradient

  template <class Description>
  void prepare(const Description& description, const dnnl::primitive& made) {
    primitive = made;
    implementation = description.impl_info_str();
    const auto scratch = description.scratchpad_desc();
    arguments[DNNL_ARG_SCRATCHPAD] = unbound(scratch);
    gradient_at = Scratch::round_up(scratch.get_size());
    scratch_bytes = gradient_at;
  }
  void prepare_weights(const PaddedProblem& p, const memory::desc& plain, const memory::desc& wanted,
                       OnednnFilterOrders& orders) {
    if (wanted != plain) order = orders.of(p, wanted, false);
    arguments[DNNL_ARG_WEIGHTS] = order ? order->ordered : unbound(plain);
  }
  void prepare_flipped_weights(const PaddedProblem& p, const memory::desc& wanted, OnednnFilterOrders& orders) {
    order = orders.of(p, wanted, true);
    arguments[DNNL_ARG_WEIGHTS] = order->ordered;
  }
  void prepare_gradient(const PaddedProblem& p, const memory::desc& plain, const memory::desc& wanted,
                        const Scratch& scratch) {
    plain_dw = unbound(plain);
    reorders = wanted != plain;
    dw = reorders ? unbound(wanted) : plain_dw;
    if (reorders) {
      reorder = dnnl::reorder(dw, plain_dw);
      tiles = TileReorder(order_in_memory(wanted, p), plain_order(p.filters, taps_of(p), p.channels));
      shared = scratch.shared_filters();
      if (shared)
        shared->memory.reserve(wanted.get_size());
      else
        scratch_bytes += wanted.get_size();
    }
    arguments[DNNL_ARG_DIFF_WEIGHTS] = dw;
  }
  void take_weights(dnnl::stream& stream, const OnednnConvolution::ShareOut& share_out, const float* data,
                    std::uint64_t version) {
    if (order) return order->take(stream, share_out, data, version);
    bind(DNNL_ARG_WEIGHTS, data);
  }
  void use(const Scratch& scratch) {
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.data());
    if (!reorders) return;
    dw.set_data_handle(shared ? shared->memory.data() : scratch.data() + gradient_at);
    if (shared) shared->order = nullptr;
  }
  void bind(int argument, const void* data) {
    // oneDNN takes no const pointers, but it does not write to inputs.
    arguments.at(argument).set_data_handle(const_cast<void*>(data));
  }
};

}  // namespace

std::optional<std::string> onednn_unsupported_reason(const ConvolutionProblem& problem, ConvolutionPass pass,
                                                     OnednnActivations activations) {
  const PaddedProblem p = padded_problem(problem);
  if (const auto reason = onednn_refusal(p, pass, activations)) return reason;
  try {
    const std::string implementation = implementation_of(p, pass, activations);
    if (!is_compiled(implementation)) {
      return "oneDNN has only its " + implementation + " kernel for this problem";
    }
  } catch (const dnnl::error&) {
    return "oneDNN has no kernel for this problem";
  }
  return std::nullopt;
}

bool onednn_has_bfloat16() {
  static const bool has = [] {
    const PaddedProblem usual{.samples = 1, .channels = 64, .filters = 64, .input = {1, 16, 16}, .output = {1, 16, 16}};
    try {
      for (const auto pass :
           {ConvolutionPass::forward, ConvolutionPass::backward_data, ConvolutionPass::backward_filter})
        if (!is_compiled(implementation_of(usual, pass, OnednnActivations::bfloat16))) return false;
    } catch (const dnnl::error&) {
      return false;
    }
    return true;
  }();
  return has;
}

void onednn_add_product(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride,
                        float* c, Index c_stride) {
  dnnl::sgemm('T', 'N', m, n, k, 1.0F, a, a_stride, b, b_stride, 1.0F, c, c_stride);
}

namespace {

/// The problem whose forward pass with flipped filters is backward-data of `p`. @pre p.stride and p.groups are 1
PaddedProblem flipped_problem(const PaddedProblem& p) {
  PaddedProblem t = p;
  std::swap(t.channels, t.filters);
  std::swap(t.input, t.output);
  for (int s = 0; s < 3; ++s) {
    const Index reach = (p.kernel[s] - 1) * p.dilation[s];
    t.padding_before[s] = reach - p.padding_before[s];
    t.padding_after[s] = reach - p.padding_after[s];
  }
  return t;
}

/// Backward-data as a forward pass with flipped filters, if oneDNN 2.6 has one of its newer kernels (brgconv) for the
/// forward pass. With enough pixels (flipping_pays()) these are faster than its kernels for backward-data.
std::optional<dnnl::convolution_forward::primitive_desc> describe_flipped(const PaddedProblem& p,
                                                                          OnednnActivations activations) {
  if (activations != OnednnActivations::float32 || p.groups > 1 || p.stride != std::array<Index, 3>{1, 1, 1} ||
      p.kernel == std::array<Index, 3>{1, 1, 1})
    return std::nullopt;
  const PaddedProblem flipped = flipped_problem(p);
  if (onednn_refusal(flipped, ConvolutionPass::forward, activations)) return std::nullopt;
  const Shapes s(flipped, activations);
  try {
    dnnl::convolution_forward::primitive_desc d{
        {dnnl::prop_kind::forward_training, direct, s.x, s.w, s.y, s.stride, s.dilation, s.before, s.after},
        s.attributes,
        cpu()};
    if (std::string_view(d.impl_info_str()).find("brgconv") == std::string_view::npos) return std::nullopt;
    return d;
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

/// Time of oneDNN's backward-data divided by the time of a forward pass, on one core of a Zen 4 with 3 × 3 (× 3)
/// filters: 1.3 to 1.4 with 16 channels, 1.03 to 1.12 with 32 to 128 channels. Less than 1 with one tap, and with 32 ×
/// 32 pixels.
bool flipping_pays(const PaddedProblem& p) {
  constexpr Index pixels_that_pay = 4096;
  return p.samples * p.input[0] * p.input[1] * p.input[2] >= pixels_that_pay;
}

}  // namespace

std::shared_ptr<FilterOrders> make_onednn_filter_orders(const std::shared_ptr<Scratch>& scratch) {
  return std::make_shared<OnednnFilterOrders>(scratch);
}

struct OnednnConvolution::Primitives {
  dnnl::stream stream{cpu()};
  ShareOut share_out;
  std::array<Pass, 3> passes;
  std::shared_ptr<OnednnFilterOrders> own_orders;
  std::shared_ptr<Scratch> scratch;
  int dy = DNNL_ARG_DIFF_DST, dx = DNNL_ARG_DIFF_SRC;  // names of the arguments of backward-data

  Pass& of(ConvolutionPass pass) { return passes[static_cast<int>(pass)]; }
};

OnednnConvolution::OnednnConvolution(const PaddedProblem& problem, ConvolutionPasses passes,
                                     OnednnActivations activations, const std::shared_ptr<FilterOrders>& orders,
                                     ShareOut share_out)
    : primitives_(std::make_unique<Primitives>()) {
  primitives_->share_out = std::move(share_out);
  const Shapes shapes(problem, activations);
  auto shared = std::dynamic_pointer_cast<OnednnFilterOrders>(orders);
  if (!shared) shared = primitives_->own_orders = std::make_shared<OnednnFilterOrders>(nullptr);
  primitives_->scratch = shared->scratch();
  if (passes.forward) {
    const auto d = describe_forward(shapes, passes.relu);
    Pass& pass = primitives_->of(ConvolutionPass::forward);
    pass.prepare(d, dnnl::convolution_forward(d));
    pass.prepare_weights(problem, shapes.plain_w, d.weights_desc(), *shared);
    pass.arguments[DNNL_ARG_SRC] = unbound(shapes.x);
    pass.arguments[DNNL_ARG_BIAS] = unbound(shapes.bias);
    pass.arguments[DNNL_ARG_DST] = unbound(shapes.y);
  }
  if (passes.backward_data) {
    Pass& pass = primitives_->of(ConvolutionPass::backward_data);
    // A border has fewer pixels. It uses the flipped filters of its interior if they exist, instead of a further copy
    // of all filters.
    if (const auto d = describe_flipped(problem, activations);
        d && (flipping_pays(problem) || shared->has(problem, d->weights_desc(), true))) {
      pass.prepare(*d, dnnl::convolution_forward(*d));
      pass.implementation += " of flipped filters";
      pass.prepare_flipped_weights(problem, d->weights_desc(), *shared);
      primitives_->dy = DNNL_ARG_SRC, primitives_->dx = DNNL_ARG_DST;
    } else {
      const auto usual = describe_backward_data(shapes);
      pass.prepare(usual, dnnl::convolution_backward_data(usual));
      pass.prepare_weights(problem, shapes.plain_w, usual.weights_desc(), *shared);
    }
    pass.arguments[primitives_->dy] = unbound(shapes.y);
    pass.arguments[primitives_->dx] = unbound(shapes.x);
  }
  if (passes.backward_filter) {
    const auto d = describe_backward_filter(shapes);
    Pass& pass = primitives_->of(ConvolutionPass::backward_filter);
    pass.prepare(d, dnnl::convolution_backward_weights(d));
    pass.prepare_gradient(problem, shapes.plain_w, d.diff_weights_desc(), *primitives_->scratch);
    pass.arguments[DNNL_ARG_SRC] = unbound(shapes.x);
    pass.arguments[DNNL_ARG_DIFF_DST] = unbound(shapes.y);
    pass.arguments[DNNL_ARG_DIFF_BIAS] = unbound(shapes.bias);
  }
  for (const Pass& pass : primitives_->passes) primitives_->scratch->reserve(pass.scratch_bytes);
}

OnednnConvolution::~OnednnConvolution() = default;

void OnednnConvolution::forward(const void* x, const float* w, const float* bias, void* y, std::uint64_t version) {
  Pass& pass = primitives_->of(ConvolutionPass::forward);
  pass.use(*primitives_->scratch);
  pass.bind(DNNL_ARG_SRC, x);
  pass.bind(DNNL_ARG_BIAS, bias);
  pass.bind(DNNL_ARG_DST, y);
  pass.take_weights(primitives_->stream, primitives_->share_out, w, version);
  pass.primitive.execute(primitives_->stream, pass.arguments);
  primitives_->stream.wait();
}

void OnednnConvolution::backward_data(const void* dy, const float* w, void* dx, std::uint64_t version) {
  Pass& pass = primitives_->of(ConvolutionPass::backward_data);
  pass.use(*primitives_->scratch);
  pass.bind(primitives_->dy, dy);
  pass.bind(primitives_->dx, dx);
  pass.take_weights(primitives_->stream, primitives_->share_out, w, version);
  pass.primitive.execute(primitives_->stream, pass.arguments);
  primitives_->stream.wait();
}

void OnednnConvolution::backward_filter(const void* x, const void* dy, float* dw, float* db) {
  Pass& pass = primitives_->of(ConvolutionPass::backward_filter);
  pass.use(*primitives_->scratch);
  pass.bind(DNNL_ARG_SRC, x);
  pass.bind(DNNL_ARG_DIFF_DST, dy);
  pass.bind(DNNL_ARG_DIFF_BIAS, db);
  pass.plain_dw.set_data_handle(dw);
  pass.primitive.execute(primitives_->stream, pass.arguments);
  if (pass.reorders && !pass.tiles.works()) pass.reorder.execute(primitives_->stream, pass.dw, pass.plain_dw);
  primitives_->stream.wait();
  if (pass.reorders && pass.tiles.works()) pass.tiles.run(primitives_->share_out, pass.dw.get_data_handle(), dw);
}

std::string OnednnConvolution::implementation(ConvolutionPass pass) const {
  return primitives_->of(pass).implementation;
}

std::size_t OnednnConvolution::scratch_bytes() const {
  std::size_t most = 0;
  for (const Pass& pass : primitives_->passes) most = std::max(most, pass.scratch_bytes);
  return Scratch::round_up(most);
}

std::size_t OnednnConvolution::workspace_bytes() const {
  return primitives_->own_orders ? primitives_->own_orders->bytes() + primitives_->scratch->bytes() : 0;
}

}  // namespace aloni::nn::local::detail
