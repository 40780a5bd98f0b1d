#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/direct_rows.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/detail/filter_products.hpp>
#include <aloni/nn/local/detail/onednn_primitives.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>

// Convolution through oneDNN on views. oneDNN needs dense memory. A view is used in place if it, or the part that
// outputs read, is one block of memory. Other views are packed into a workspace; without them its pages stay untouched.
// The gradient of filters in float is computed by matrix products where these are faster; they need no dense memory.
// The direct implementation, or for bfloat16 a convolution in float, computes passes that oneDNN does not support,
// computes wrong or has only its reference kernel for.

namespace aloni::nn::local::detail {

template <class T>
struct ZeroValue {
  T operator()() const { return T(0); }
};

template <class T>
inline constexpr auto activations_of =
    std::is_same_v<T, float> ? OnednnActivations::float32 : OnednnActivations::bfloat16;

template <class T, class Exec>
class OnednnBackend final : public LocalConvolution<T, Exec> {
 public:
  OnednnBackend(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes,
                const std::shared_ptr<FilterOrders>& orders)
      : LocalConvolution<T, Exec>(problem, passes),
        part_(padded_problem(problem)),
        multiplies_(passes.backward_filter && multiplies_for_filters(problem, element_type<T>)),
        own_orders_(orders ? nullptr : make_onednn_filter_orders(nullptr)),
        scratch_((orders ? orders : own_orders_)->scratch()) {
    auto reason = [&](bool wanted, ConvolutionPass pass) {
      auto& why = reasons_[static_cast<int>(pass)];
      if (wanted) why = onednn_unsupported_reason(problem, pass, activations_of<T>);
      return why.has_value();
    };
    const ConvolutionPasses elsewhere{
        .forward = reason(passes.forward, ConvolutionPass::forward),
        .backward_data = reason(passes.backward_data, ConvolutionPass::backward_data),
        .backward_filter = reason(passes.backward_filter && !multiplies_, ConvolutionPass::backward_filter)};
    const ConvolutionPasses here{
        .forward = passes.forward && !elsewhere.forward,
        .backward_data = passes.backward_data && !elsewhere.backward_data,
        .backward_filter = passes.backward_filter && !elsewhere.backward_filter && !multiplies_,
        .relu = passes.relu};
    if (elsewhere.forward || elsewhere.backward_data || elsewhere.backward_filter) {
      if constexpr (std::is_same_v<T, float>)
        other_ = make_direct_convolution<float, Exec>(problem, exec, elsewhere);
      else
        other_ = make_converting_convolution<T, Exec>(problem, exec, elsewhere, ConvolutionBackend::automatic);
    }
    const bool runs_onednn = here.forward || here.backward_data || here.backward_filter;
    if (!runs_onednn && !multiplies_) return;
    if (runs_onednn) {
      const auto share = [exec](Index parts, const std::function<void(Index)>& reorder) {
        share_out(exec, std::max<Index>(1, exec.concurrency()), "aloni::nn::reorder_filters", parts,
                  [&reorder](Index, Index begin, Index end) {
                    for (Index part = begin; part < end; ++part) reorder(part);
                  });
      };
      onednn_ =
          std::make_unique<OnednnConvolution>(part_, here, activations_of<T>, orders ? orders : own_orders_, share);
    }
    const Index in = part_.samples * part_.input[0] * part_.input[1] * part_.input[2] * part_.channels;
    const Index out = part_.samples * part_.output[0] * part_.output[1] * part_.output[2] * part_.filters;
    // Behind oneDNN's own scratch memory: room for dense copies.
    input_.at = onednn_ ? onednn_->scratch_bytes() : 0;
    if (!passes.dense_input || !reads_contiguously()) input_.elements = static_cast<std::size_t>(in);
    output_.at = Scratch::round_up(input_.at + input_.elements * sizeof(T));
    if (!passes.dense_output) output_.elements = static_cast<std::size_t>(out);
    scratch_->reserve(output_.at + output_.elements * sizeof(T));
    zeros_ = Floats(Kokkos::view_alloc(exec, "aloni::nn::onednn_bias"), static_cast<std::size_t>(part_.filters));
    unwanted_ =
        Floats(Kokkos::view_alloc(exec, "aloni::nn::onednn_bias_gradient"), static_cast<std::size_t>(part_.filters));
  }

  std::string implementation(ConvolutionPass pass) const override {
    const auto& reason = reasons_[static_cast<int>(pass)];
    if (multiplies_ && pass == ConvolutionPass::backward_filter) return "onednn products of matrices";
    return reason ? other_->implementation(pass) + " (" + *reason + ")" : "onednn " + onednn_->implementation(pass);
  }
  void set_filter_version(std::uint64_t version) override {
    LocalConvolution<T, Exec>::set_filter_version(version);
    if (other_) other_->set_filter_version(version);
  }
  std::size_t workspace_bytes() const override {
    return (zeros_.size() + unwanted_.size()) * sizeof(float) +
           (own_orders_ ? own_orders_->bytes() + scratch_->bytes() : 0) + (other_ ? other_->workspace_bytes() : 0);
  }

 private:
  /// A part of the scratch memory.
  struct Memory {
    std::size_t at = 0, elements = 0;
  };
  using Floats = Kokkos::View<float*, typename Exec::memory_space>;
  using In = Tensor<const T, Exec>;
  using Out = Tensor<T, Exec>;
  using Weights = Tensor<const float, Exec>;

  bool fuses_relu() const override { return !goes_elsewhere(ConvolutionPass::forward); }
  bool goes_elsewhere(ConvolutionPass pass) const { return reasons_[static_cast<int>(pass)].has_value(); }

  /// The part of a view over the problem's input that oneDNN reads or writes.
  template <class View>
  View part_of(const View& v) const {
    auto range = [&](int s) { return std::pair<Index, Index>(part_.first[s], part_.first[s] + part_.input[s]); };
    return View(Kokkos::subview(v, Kokkos::ALL, range(0), range(1), range(2), Kokkos::ALL));
  }

  T* data(const Memory& memory) const { return reinterpret_cast<T*>(scratch_->data() + memory.at); }
  /// A dense view over workspace with another view's extents.
  template <class View>
  Out packed(const Memory& memory, const View& like) const {
    return dense_tensor<T, Exec>(data(memory), like.extent(0), like.extent(1), like.extent(2), like.extent(3),
                                 like.extent(4));
  }

  /// Whether the part of a dense x that oneDNN reads is dense.
  bool reads_contiguously() const {
    bool one_before = part_.samples == 1;
    for (int s = 0; s < 3; ++s) {
      if (part_.input[s] != this->problem().input[s] && !one_before) return false;
      one_before = one_before && part_.input[s] == 1;
    }
    return true;
  }

  static void check_room(const Memory& memory, std::size_t size) {
    check(memory.elements >= size, "aloni::nn::local::LocalConvolution", "x, y or dy", "a view with gaps",
          "a dense view, because the passes given to make_local_convolution say dense");
  }

  const T* dense(const Exec& exec, const In& v, const Memory& memory) const {
    if (views::is_dense(v)) return v.data();
    check_room(memory, v.size());
    elementwise<Exec, Convert<T>, T>(exec, "aloni::nn::onednn_pack", {}, packed(memory, v), v);
    return data(memory);
  }
  /// The view itself if the channels of a pixel follow each other, and copies_for_products() wants no copy.
  Pixels pixels(const Exec& exec, const In& v, const Memory& memory) const {
    const bool packs = copies_for_products(this->problem());
    const auto stride = [&](int i) { return static_cast<Index>(v.stride(i)); };
    if (stride(4) == 1 && !packs) return {v.data(), {stride(0), stride(1), stride(2), stride(3)}};
    const Index pixel = static_cast<Index>(v.extent(4)), row = pixel * static_cast<Index>(v.extent(3));
    const Index plane = row * static_cast<Index>(v.extent(2));
    return {dense(exec, v, memory), {plane * static_cast<Index>(v.extent(1)), plane, row, pixel}};
  }
  /// Dense memory for a result: the view itself, or workspace if the view has gaps.
  T* room_for(const Out& v, const Memory& memory) const {
    if (views::is_dense(v)) return v.data();
    check_room(memory, v.size());
    return data(memory);
  }
  void unpack(const Exec& exec, const Memory& memory, const Out& v) const {
    if (views::is_dense(v)) return;
    elementwise<Exec, Convert<T>, T>(exec, "aloni::nn::onednn_unpack", {}, v, packed(memory, v));
  }

  void run_forward(const Exec& exec, const In& x, const Weights& w, const Array<const float, Exec>& bias,
                   const Out& y) override {
    if (goes_elsewhere(ConvolutionPass::forward)) return other_->forward(exec, x, w, bias, y);
    onednn_->forward(dense(exec, part_of(x), input_), w.data(), bias.extent(0) > 0 ? bias.data() : zeros_.data(),
                     room_for(y, output_), this->filters_version());
    unpack(exec, output_, y);
  }

  void run_backward_data(const Exec& exec, const In& dy, const Weights& w, const Out& dx) override {
    if (goes_elsewhere(ConvolutionPass::backward_data)) return other_->backward_data(exec, dy, w, dx);
    const Out part = part_of(dx);
    if (part.size() < dx.size()) {
      elementwise<Exec, ZeroValue<T>, T>(exec, "aloni::nn::onednn_zero", {}, dx);
    }
    onednn_->backward_data(dense(exec, dy, output_), w.data(), room_for(part, input_), this->filters_version());
    unpack(exec, input_, part);
  }

  void run_backward_filter(const Exec& exec, const In& x, const In& dy, const Tensor<float, Exec>& dw,
                           const Array<float, Exec>& db) override {
    if (goes_elsewhere(ConvolutionPass::backward_filter)) return other_->backward_filter(exec, x, dy, dw, db);
    if constexpr (std::is_same_v<T, float>) {
      if (multiplies_) {
        const Pixels to = pixels(exec, dy, output_);
        set_filter_products(exec, part_, onednn_add_product, pixels(exec, part_of(x), input_), to, dw.data());
        if (db.extent(0) > 0) sum_pixels(exec, part_, to, db.data());
        return;
      }
    }
    const T* const from = dense(exec, part_of(x), input_);
    onednn_->backward_filter(from, dense(exec, dy, output_), dw.data(),
                             db.extent(0) > 0 ? db.data() : unwanted_.data());
  }

  const PaddedProblem part_;
  const bool multiplies_;                           // matrix products compute the gradient of filters
  const std::shared_ptr<FilterOrders> own_orders_;  ///< null: the caller has given some
  const std::shared_ptr<Scratch> scratch_;
  std::array<std::optional<std::string>, 3> reasons_;
  std::unique_ptr<OnednnConvolution> onednn_;
  std::unique_ptr<LocalConvolution<T, Exec>> other_;  // for passes that oneDNN does not support
  Memory input_, output_;
  Floats zeros_, unwanted_;  // in place of a missing bias, and of an unwanted gradient
};

std::optional<std::string> onednn_bfloat16_unsupported_reason() {
  if (onednn_has_bfloat16()) return std::nullopt;
  return "oneDNN has no bfloat16 kernels for this processor (it needs AVX-512, for example); use float or reference";
}

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_onednn_convolution(const ConvolutionProblem& problem, const Exec& exec,
                                                                   ConvolutionPasses passes,
                                                                   const std::shared_ptr<FilterOrders>& orders) {
  return std::make_unique<OnednnBackend<T, Exec>>(problem, exec, passes, orders);
}

using Host = Kokkos::DefaultHostExecutionSpace;
#define INSTANTIATE(T)                                                                  \
  template std::unique_ptr<LocalConvolution<T, Host>> make_onednn_convolution<T, Host>( \
      const ConvolutionProblem&, const Host&, ConvolutionPasses, const std::shared_ptr<FilterOrders>&);
INSTANTIATE(float)
ALONI_WITH_BFLOAT16(INSTANTIATE(comm::bfloat16))
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
