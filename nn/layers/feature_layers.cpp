// Layers without a window and without statistics: ReLU, flatten, dense, add.
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/layers/layer.hpp>
#include <aloni/nn/local/dense.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {

using views::Dim;

namespace {

/// y may be x, and dx may be dy: the gradient depends on y only.
template <class T, class Exec>
class ReluLayer final : public Layer<T, Exec> {
 public:
  explicit ReluLayer(const LayerSetup<T, Exec>& s)
      : x_(s.x[0]), y_(s.y), dx_(s.dx[0]), dy_(s.dy), work_(s.plan.forward_work(s.comm.rank())) {}

  void add_forward(Step<Exec>& step, Mode) override {
    if (work_.empty()) return;
    step.kernel("", {reads(x_, work_), writes(y_, work_)}, [x = x_.part(work_), y = y_.part(work_)](const Exec& exec) {
      local::relu_forward<T, Exec>(exec, x, y);
    });
  }
  void add_backward(Step<Exec>& step) override {
    if (!dx_.allocated() || dx_.owned.empty()) return;
    step.kernel("", {reads(y_), reads(dy_), writes(dx_)},
                [y = y_.owned_part(), dy = dy_.owned_part(), dx = dx_.owned_part()](const Exec& exec) {
                  local::relu_backward<T, Exec>(exec, y, dy, dx);
                });
  }

 private:
  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
  views::Box work_;
};

/// The input has whole samples and is dense. The output has the same elements in the same order, with another shape.
template <class T, class Exec>
class FlattenLayer final : public Layer<T, Exec> {
 public:
  explicit FlattenLayer(const LayerSetup<T, Exec>& s) : x_(s.x[0]), y_(s.y), dx_(s.dx[0]), dy_(s.dy) {}

  void add_forward(Step<Exec>& step, Mode) override {
    if (!y_.owned.empty()) add_copy(step, x_, x_.owned_part(), y_, reshaped(y_.storage.data()));
  }
  void add_backward(Step<Exec>& step) override {
    if (!dx_.allocated() || dx_.owned.empty()) return;
    add_copy(step, dy_, reshaped(dy_.storage.data()), dx_, dx_.owned_part());
  }

 private:
  using Mem = typename Exec::memory_space;

  static void add_copy(Step<Exec>& step, const Tensor<T, Mem>& source, const views::LocalView<T, Mem>& from,
                       const Tensor<T, Mem>& target, const views::LocalView<T, Mem>& to) {
    step.kernel("", {reads(source), writes(target)},
                [from, to](const Exec& exec) { local::copy<T, Exec>(exec, from, to); });
  }
  views::LocalView<T, Mem> reshaped(T* features) const {
    const auto e = views::extents_of(x_.owned).values;
    return local::dense_tensor<T, Exec>(features, e[0], e[1], e[2], e[3], e[4]);
  }

  Tensor<T, typename Exec::memory_space> x_, y_, dx_, dy_;
};

/// Matrix products of float or double. bfloat16 activations are copied to float and back.
template <class T, class Exec>
class DenseLayer final : public Layer<T, Exec> {
 public:
  using Mem = typename Exec::memory_space;
  using Parameter = parameter_type_t<T>;

  explicit DenseLayer(const LayerSetup<T, Exec>& s)
      : counts_(counts_in_sums(s.plan.output, s.comm.rank())), x_(s.x[0]), y_(s.y), dx_(s.dx[0]), dy_(s.dy) {
    const int first = s.parameters.find(s.index, 0);
    w_ = s.parameters.vector_value(first);
    dw_ = s.parameters.vector_gradient(first);
    if (std::get<Dense>(s.description.operation).bias) {
      b_ = s.parameters.vector_value(first + 1);
      db_ = s.parameters.vector_gradient(first + 1);
    }
    if constexpr (copies) {
      input_ = allocate_tensor<Parameter>(s.queue.space(), "aloni::nn::dense_input", x_.owned, x_.owned);
      output_ = allocate_tensor<Parameter>(s.queue.space(), "aloni::nn::dense_output", y_.owned, y_.owned);
    }
  }

  void add_forward(Step<Exec>& step, Mode) override {
    if (y_.owned.empty()) return;
    step.kernel("", {reads(x_), reads(w_), reads(b_), writes(y_), writes(input_), writes(output_)},
                [this](const Exec& exec) {
                  const View x = given(exec, x_, input_), y = room_for(y_, output_);
                  local::dense_forward<Parameter, Exec>(exec, x, w_, b_, y);
                  finish(exec, y_, output_);
                });
  }
  void add_backward(Step<Exec>& step) override {
    step.kernel("weights", {reads(x_), reads(dy_), writes(dw_), writes(db_), writes(input_), writes(output_)},
                [this](const Exec& exec) {
                  if (counts_ && !dy_.owned.empty()) {
                    const View x = given(exec, x_, input_), dy = given(exec, dy_, output_);
                    local::dense_backward_parameters<Parameter, Exec>(exec, x, dy, dw_, db_);
                  } else {
                    Kokkos::deep_copy(exec, dw_, Parameter(0));
                    if (db_.extent(0) > 0) Kokkos::deep_copy(exec, db_, Parameter(0));
                  }
                });
    if (dx_.allocated() && !dx_.owned.empty()) {
      step.kernel("data", {reads(dy_), reads(w_), writes(dx_), writes(input_), writes(output_)},
                  [this](const Exec& exec) {
                    const View dy = given(exec, dy_, output_), dx = room_for(dx_, input_);
                    local::dense_backward_data<Parameter, Exec>(exec, dy, w_, dx);
                    finish(exec, dx_, input_);
                  });
    }
  }

 private:
  using View = views::LocalView<Parameter, Mem>;
  static constexpr bool copies = !std::is_same_v<T, Parameter>;

  /// The owned part of a tensor as an operand of the matrix product.
  static View given(const Exec& exec, const Tensor<T, Mem>& t, const Tensor<Parameter, Mem>& copy) {
    const View view = room_for(t, copy);
    if constexpr (copies) local::convert<Parameter, T, Exec>(exec, t.owned_part(), view);
    return view;
  }
  /// Memory for a result of the matrix product that belongs to tensor `t`.
  static View room_for(const Tensor<T, Mem>& t, const Tensor<Parameter, Mem>& copy) {
    if constexpr (copies) {
      return copy.whole();
    } else {
      return t.owned_part();
    }
  }
  static void finish(const Exec& exec, const Tensor<T, Mem>& t, const Tensor<Parameter, Mem>& copy) {
    if constexpr (copies) local::convert<T, Parameter, Exec>(exec, copy.whole(), t.owned_part());
  }

  bool counts_;
  Tensor<T, Mem> x_, y_, dx_, dy_;
  Tensor<Parameter, Mem> input_, output_;  ///< float copies of x and dx, and of y and dy; bfloat16 only
  Kokkos::View<Parameter*, Mem> w_, b_, dw_, db_;
};

template <class T, class Exec>
class AddLayer final : public Layer<T, Exec> {
 public:
  explicit AddLayer(const LayerSetup<T, Exec>& s)
      : x_(s.x), dx_(s.dx), y_(s.y), dy_(s.dy), work_(s.plan.forward_work(s.comm.rank())) {}

  void add_forward(Step<Exec>& step, Mode) override {
    if (work_.empty()) return;
    std::vector<Access> accesses{writes(y_, work_)};
    for (const auto& x : x_) accesses.push_back(reads(x, work_));
    step.kernel("", std::move(accesses), [this](const Exec& exec) {
      const auto y = y_.part(work_);
      local::add<T, Exec>(exec, x_[0].part(work_), x_[1].part(work_), y);
      for (std::size_t k = 2; k < x_.size(); ++k) local::add<T, Exec>(exec, y, x_[k].part(work_), y);
    });
  }
  void add_backward(Step<Exec>& step) override {
    for (const auto& dx : dx_) {
      if (!dx.allocated() || dx.owned.empty()) continue;
      step.kernel("", {reads(dy_), writes(dx)}, [dy = dy_.owned_part(), dx = dx.owned_part()](const Exec& exec) {
        local::copy<T, Exec>(exec, dy, dx);
      });
    }
  }

 private:
  std::vector<Tensor<T, typename Exec::memory_space>> x_, dx_;
  Tensor<T, typename Exec::memory_space> y_, dy_;
  views::Box work_;
};

}  // namespace

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_relu_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<ReluLayer<T, Exec>>(setup);
}
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_flatten_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<FlattenLayer<T, Exec>>(setup);
}
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_dense_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<DenseLayer<T, Exec>>(setup);
}
template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_add_layer(const LayerSetup<T, Exec>& setup) {
  return std::make_unique<AddLayer<T, Exec>>(setup);
}

#define INSTANTIATE(T, Exec)                                                               \
  template std::unique_ptr<Layer<T, Exec>> make_relu_layer(const LayerSetup<T, Exec>&);    \
  template std::unique_ptr<Layer<T, Exec>> make_flatten_layer(const LayerSetup<T, Exec>&); \
  template std::unique_ptr<Layer<T, Exec>> make_dense_layer(const LayerSetup<T, Exec>&);   \
  template std::unique_ptr<Layer<T, Exec>> make_add_layer(const LayerSetup<T, Exec>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
