#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/factor_sums.hpp>
#include <aloni/nn/local/dense.hpp>
#include <aloni/nn/local/dropout.hpp>
#include <aloni/nn/local/loss.hpp>
#include <aloni/nn/local/metric_sums.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/local/pointwise_layers.hpp>
#include <aloni/nn/local/pooling.hpp>
#include <aloni/nn/local/resampling.hpp>
#include <aloni/nn/run/binder.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace aloni::nn {

using views::Box;
using views::Dim;

namespace {

/// Writes the sum of losses and the number of correct predictions behind the gradients.
template <class T, class Exec>
void append_loss(const Exec& exec, const Kokkos::View<T*, typename Exec::memory_space>& tail,
                 const Kokkos::View<double*, typename Exec::memory_space>& loss) {
  Kokkos::parallel_for(
      "aloni::nn::append_loss", Kokkos::RangePolicy<Exec>(exec, 0, static_cast<Index>(loss.extent(0))),
      KOKKOS_LAMBDA(Index i) { tail(i) = static_cast<T>(loss(i)); });
}

}  // namespace

// --- windows ---

/// The positions of maxima: all that are computed, or those of owned outputs for the backward pass. Empty for
/// no_buffer: inference needs none.
template <class T, class Exec>
auto Binder<T, Exec>::positions(const StepPlan& plan, BufferId argmax, bool backward) const
    -> views::LocalView<std::int32_t, Mem> {
  if (argmax == no_buffer) return {};
  const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(argmax)];
  return memory_.template view<std::int32_t>(plan, argmax, backward ? buffer.owned : buffer.box);
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const PoolingWork& work) -> Kernel {
  const View from = memory_.template view<T>(plan, work.source, work.from);
  const View to = memory_.template view<T>(plan, work.target, work.to);
  if (work.kind == PoolingKind::average) {
    return [p = work.problem, divisor = work.divisor, from, to, backward = work.backward](const Exec& exec) {
      if (backward) {
        local::average_pool_backward<T, Exec>(exec, p, divisor, from, to);
      } else {
        local::average_pool_forward<T, Exec>(exec, p, divisor, from, to);
      }
    };
  }
  const auto argmax = positions(plan, work.argmax, work.backward);
  return [p = work.problem, from, to, argmax, relu = work.relu, backward = work.backward](const Exec& exec) {
    if (backward) {
      local::max_pool_backward<T, Exec>(exec, p, from, argmax, to);
    } else {
      local::max_pool_forward<T, Exec>(exec, p, from, to, argmax, relu);
    }
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const ResamplingWork& work) -> Kernel {
  const View from = memory_.template view<T>(plan, work.source, work.from);
  const View to = memory_.template view<T>(plan, work.target, work.to);
  if (!work.maximum) {
    return [p = work.problem, from, to, backward = work.backward](const Exec& exec) {
      if (backward) {
        local::resample_backward<T, Exec>(exec, p, from, to);
      } else {
        local::resample_forward<T, Exec>(exec, p, from, to);
      }
    };
  }
  const auto argmax = positions(plan, work.argmax, work.backward);
  return [p = work.problem, from, to, argmax, backward = work.backward](const Exec& exec) {
    if (backward) {
      local::adaptive_max_pool_backward<T, Exec>(exec, p, from, argmax, to);
    } else {
      local::adaptive_max_pool_forward<T, Exec>(exec, p, from, to, argmax);
    }
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const GlobalAverageWork& work) -> Kernel {
  const double scale = work.scale;
  if (work.stage == GlobalAverageStage::sums) {
    return [scale, x = memory_.template view<T>(plan, work.source, work.from),
            sums = memory_.template view<Parameter>(plan, work.target, work.to)](const Exec& exec) {
      local::global_average_forward<T, Exec>(exec, scale, x, sums);
    };
  }
  if (work.stage == GlobalAverageStage::mean) {
    return [sums = memory_.template view<Parameter>(plan, work.source, work.from),
            y = memory_.template view<T>(plan, work.target, work.to)](const Exec& exec) {
      local::convert<T, Parameter, Exec>(exec, sums, y);
    };
  }
  return [scale, dy = memory_.template view<T>(plan, work.source, work.from),
          dx = memory_.template view<T>(plan, work.target, work.to)](const Exec& exec) {
    local::global_average_backward<T, Exec>(exec, scale, dy, dx);
  };
}

// --- normalisation ---

template <class T, class Exec>
auto Binder<T, Exec>::normalisation(const StepPlan&, const NormalisationWork& work) -> Normalisation& {
  auto& n = normalisations_[work.layer];
  if (n) return *n;
  n = std::make_unique<Normalisation>();
  const Exec& exec = queue_.space();
  const auto extents = views::extents_of(work.region).values;
  switch (work.kind) {
    case NormalisationKind::batch:  // has no state
      break;
    case NormalisationKind::group:
      n->group.emplace(exec, extents, local::ChannelGroups{work.groups, work.group_channels, work.first_channel});
      break;
    case NormalisationKind::layer:
      n->layer.emplace(exec, extents, work.epsilon);
      break;
  }
  if (work.gamma != no_buffer) return *n;
  const auto channels = static_cast<std::size_t>(extents[4]);
  n->ones = Flat<Parameter>(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::gamma"), channels);
  Kokkos::deep_copy(exec, n->ones, Parameter(1));
  n->zeros = Flat<Parameter>(Kokkos::view_alloc(exec, "aloni::nn::beta"), channels);
  return *n;
}

namespace {

/// The views of one normalisation. Those of buffers that its stage does not use are empty.
template <class T, class Exec>
struct NormalisationViews {
  using Parameter = parameter_type_t<T>;
  views::LocalView<T, typename Exec::memory_space> x, y, dx, dy, summand;
  Kokkos::View<Parameter*, typename Exec::memory_space> gamma, beta;    // of the rank's channels
  Kokkos::View<Parameter*, typename Exec::memory_space> dgamma, dbeta;  // of the rank's channels
  Kokkos::View<Parameter*, typename Exec::memory_space> all_dgamma, all_dbeta;
  Kokkos::View<double*, typename Exec::memory_space> sums, known_sums, all_sums;
  Kokkos::View<double*, typename Exec::memory_space> mean, inv_std, running_mean, running_variance;
  bool is_first_copy = true;

  void zero_gradients(const Exec& exec) const {
    Kokkos::deep_copy(exec, all_dgamma, Parameter(0));
    Kokkos::deep_copy(exec, all_dbeta, Parameter(0));
  }
  /// Gradients of channels of other ranks are zero.
  bool has_others() const { return all_dgamma.extent(0) > dgamma.extent(0); }
};

}  // namespace

template <class T, class Exec>
template <class Views>
Views Binder<T, Exec>::views_of(const StepPlan& plan, const NormalisationWork& work) {
  Views v;
  const auto part = [&](BufferId b, const Box& region) {
    return b == no_buffer ? View{} : memory_.template view<T>(plan, b, region);
  };
  const auto tensor = [&](BufferId b) { return part(b, work.region); };
  v.x = tensor(work.x);
  v.y = tensor(work.y);
  v.dx = tensor(work.dx);
  v.dy = tensor(work.dy);
  v.summand = part(work.summand, work.summand_region);
  v.is_first_copy = work.is_first_copy;
  const Normalisation& n = normalisation(plan, work);
  v.gamma = work.gamma == no_buffer ? n.ones : channels(plan, work.gamma, work.region);
  v.beta = work.beta == no_buffer ? n.zeros : channels(plan, work.beta, work.region);
  v.all_dgamma = memory_.template flat<Parameter>(plan, work.dgamma);
  v.all_dbeta = memory_.template flat<Parameter>(plan, work.dbeta);
  v.dgamma = channels(plan, work.dgamma, work.region);
  v.dbeta = channels(plan, work.dbeta, work.region);
  v.sums = memory_.template flat<double>(plan, work.sums);
  if (work.kind != NormalisationKind::batch) return v;
  v.known_sums = memory_.template flat<double>(plan, work.known_sums);
  v.all_sums = memory_.template flat<double>(plan, work.all_sums);
  const Flat<double> statistics = memory_.template flat<double>(plan, work.statistics);
  const auto half = statistics.extent(0) / 2;
  v.mean = Kokkos::subview(statistics, Kokkos::make_pair(std::size_t{0}, half));
  v.inv_std = Kokkos::subview(statistics, Kokkos::make_pair(half, 2 * half));
  if (!work.updates_running) return v;
  const auto& running = parameters_->running_statistics(work.layer);
  const auto own = Kokkos::make_pair(work.region.lower(Dim::channel), work.region.upper(Dim::channel));
  v.running_mean = Kokkos::subview(running.mean, own);
  v.running_variance = Kokkos::subview(running.variance, own);
  return v;
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const NormalisationWork& work) -> Kernel {
  switch (work.kind) {
    case NormalisationKind::batch:
      return batch_norm(plan, work);
    case NormalisationKind::group:
      return group_norm(plan, work);
    case NormalisationKind::layer:
      break;
  }
  return layer_norm(plan, work);
}

template <class T, class Exec>
auto Binder<T, Exec>::batch_norm(const StepPlan& plan, const NormalisationWork& work) -> Kernel {
  const auto v = views_of<NormalisationViews<T, Exec>>(plan, work);
  const auto extents = views::extents_of(work.region).values;
  std::shared_ptr<local::BatchNormReduction<T, Exec>> reduction;
  if (work.stage == NormalisationStage::statistics || work.stage == NormalisationStage::gradient_sums)
    reduction = std::make_shared<local::BatchNormReduction<T, Exec>>(extents[0], extents[1], extents[2], extents[4],
                                                                     memory_.template flat<double>(plan, work.partial));
  const Index count = work.count;
  typename local::BatchNormReduction<T, Exec>::Rectified relu;
  if (work.relu) relu = {v.gamma, v.beta};
  switch (work.stage) {
    case NormalisationStage::statistics:
      return [v, reduction](const Exec& exec) { reduction->statistics(exec, v.x, v.sums); };
    case NormalisationStage::forward:
      return [v, count, relu = work.relu || work.sum_relu, trains = work.trains, empty = work.region.empty(),
              epsilon = work.epsilon, momentum = work.momentum](const Exec& exec) {
        if (trains) {
          local::batch_norm_finish<Exec>(exec, count, {epsilon, momentum}, v.sums, v.mean, v.inv_std, v.running_mean,
                                         v.running_variance, v.known_sums, v.all_sums);
        } else {
          local::batch_norm_inverse<Exec>(exec, epsilon, v.running_variance, v.inv_std);
        }
        if (empty) return;
        local::batch_norm_forward<T, Exec>(exec, v.x, trains ? v.mean : v.running_mean, v.inv_std, v.gamma, v.beta, v.y,
                                           relu, v.summand);
      };
    case NormalisationStage::gradient_sums:
      return [v, reduction, count, relu](const Exec& exec) {
        if (v.has_others()) v.zero_gradients(exec);
        if (count > 0) {
          reduction->gradients(exec, v.x, v.dy, v.mean, v.inv_std, v.sums, relu);
          local::batch_norm_parameter_gradients<Parameter, Exec>(exec, v.sums, v.dgamma, v.dbeta);
        }
        if (count == 0 || !v.is_first_copy) v.zero_gradients(exec);
      };
    case NormalisationStage::squares:
    case NormalisationStage::scale_gradients:
    case NormalisationStage::backward:
      break;
  }
  return [v, count, relu](const Exec& exec) {
    local::batch_norm_backward<T, Exec>(exec, count, v.x, v.dy, v.mean, v.inv_std, v.gamma, v.sums, v.dx, relu.beta,
                                        v.summand);
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::group_norm(const StepPlan& plan, const NormalisationWork& work) -> Kernel {
  const auto v = views_of<NormalisationViews<T, Exec>>(plan, work);
  local::LocalGroupNorm<T, Exec>* const norm = &*normalisation(plan, work).group;
  const Index count = work.count;
  switch (work.stage) {
    case NormalisationStage::statistics:
      return [v, norm](const Exec& exec) { norm->statistics(exec, v.x, v.sums); };
    case NormalisationStage::forward:
      return [v, norm, count, epsilon = work.epsilon](const Exec& exec) {
        norm->finish(exec, count, epsilon, v.sums);
        norm->forward(exec, v.x, v.gamma, v.beta, v.y);
      };
    case NormalisationStage::gradient_sums:
      return [v, norm](const Exec& exec) { norm->gradients(exec, v.x, v.dy, v.gamma, v.sums); };
    case NormalisationStage::scale_gradients:
      return [v, norm](const Exec& exec) {
        if (!v.is_first_copy || v.has_others()) v.zero_gradients(exec);
        if (v.is_first_copy) norm->parameter_gradients(exec, v.dgamma, v.dbeta);
      };
    case NormalisationStage::squares:
    case NormalisationStage::backward:
      break;
  }
  return [v, norm, count](const Exec& exec) { norm->backward(exec, count, v.x, v.dy, v.gamma, v.sums, v.dx); };
}

template <class T, class Exec>
auto Binder<T, Exec>::layer_norm(const StepPlan& plan, const NormalisationWork& work) -> Kernel {
  const auto v = views_of<NormalisationViews<T, Exec>>(plan, work);
  local::LocalLayerNorm<T, Exec>* const norm = &*normalisation(plan, work).layer;
  const bool splits = work.splits_cells;
  const Index count = work.count;
  switch (work.stage) {
    case NormalisationStage::statistics:
      return [v, norm](const Exec& exec) { norm->sums(exec, v.x, v.sums); };
    case NormalisationStage::squares:
      return [v, norm, count, squares = memory_.template flat<double>(plan, work.squares)](const Exec& exec) {
        norm->squares(exec, count, v.x, v.sums, squares);
      };
    case NormalisationStage::forward:
      if (splits) {
        return [v, norm, count](const Exec& exec) { norm->forward(exec, count, v.x, v.gamma, v.beta, v.sums, v.y); };
      }
      return [v, norm](const Exec& exec) { norm->forward(exec, v.x, v.gamma, v.beta, v.y); };
    case NormalisationStage::gradient_sums:
      return [v, norm](const Exec& exec) { norm->gradient_sums(exec, v.x, v.dy, v.gamma, v.sums); };
    case NormalisationStage::scale_gradients:
      return [v, norm](const Exec& exec) {
        if (!v.is_first_copy || v.has_others()) v.zero_gradients(exec);
        if (v.is_first_copy) norm->parameter_gradients(exec, v.x, v.dy, v.dgamma, v.dbeta);
      };
    case NormalisationStage::backward:
      break;
  }
  if (splits) {
    return [v, norm, count](const Exec& exec) { norm->backward(exec, count, v.x, v.dy, v.gamma, v.sums, v.dx); };
  }
  return [v, norm](const Exec& exec) { norm->backward(exec, v.x, v.dy, v.gamma, v.dx); };
}

// --- the others ---

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const DenseWork& work) -> Kernel {
  // Matrix products of float or double. Activations of 16 bits are copied to float and back.
  using ParameterView = views::LocalView<Parameter, Mem>;
  constexpr bool copies = !std::is_same_v<T, Parameter>;
  const auto owned = [&](BufferId b) {
    return b == no_buffer ? View{} : memory_.template view<T>(plan, b, plan.buffers[static_cast<std::size_t>(b)].owned);
  };
  /// An operand or result of the product that belongs to tensor `b`.
  const auto operand = [&](BufferId b, BufferId copy) {
    if constexpr (copies) {
      (void)b;
      return memory_.template view<Parameter>(plan, copy);
    } else {
      (void)copy;
      return owned(b);
    }
  };
  const auto give = [](const Exec& exec, const View& from, const ParameterView& to) {
    if constexpr (copies) local::convert<Parameter, T, Exec>(exec, from, to);
  };
  const auto take = [](const Exec& exec, const ParameterView& from, const View& to) {
    if constexpr (copies) local::convert<T, Parameter, Exec>(exec, from, to);
  };
  const auto w = memory_.template flat<Parameter>(plan, work.w), b = memory_.template flat<Parameter>(plan, work.b);
  switch (work.pass) {
    case DensePass::forward:
      return [give, take, w, b, x = owned(work.x), y = owned(work.y), in = operand(work.x, work.input_copy),
              out = operand(work.y, work.output_copy)](const Exec& exec) {
        give(exec, x, in);
        local::dense_forward<Parameter, Exec>(exec, in, w, b, out);
        take(exec, out, y);
      };
    case DensePass::parameters: {
      const auto dw = memory_.template flat<Parameter>(plan, work.dw),
                 db = memory_.template flat<Parameter>(plan, work.db);
      if (!work.contributes) {
        return [dw, db](const Exec& exec) {
          Kokkos::deep_copy(exec, dw, Parameter(0));
          if (db.extent(0) > 0) Kokkos::deep_copy(exec, db, Parameter(0));
        };
      }
      const local::ConvolutionProblem pixel{
          .samples = work.samples, .channels = work.inputs, .filters = work.features};  // the layer as a convolution
      return [this, layer = work.layer, pixel, give, dw, db, x = owned(work.x), dy = owned(work.dy),
              in = operand(work.x, work.input_copy), out = operand(work.dy, work.output_copy)](const Exec& exec) {
        give(exec, x, in);
        give(exec, dy, out);
        local::dense_backward_parameters<Parameter, Exec>(exec, in, out, dw, db);
        if (factor_sums_) factor_sums_->add(exec, layer, pixel, x, dy);
      };
    }
    case DensePass::data:
      break;
  }
  return [give, take, w, dy = owned(work.dy), dx = owned(work.dx), out = operand(work.dy, work.output_copy),
          in = operand(work.dx, work.input_copy)](const Exec& exec) {
    give(exec, dy, out);
    local::dense_backward_data<Parameter, Exec>(exec, out, w, in);
    take(exec, in, dx);
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const PointwiseWork& work) -> Kernel {
  const auto view_of = [&](const PointwiseInput& p) { return memory_.template view<T>(plan, p.buffer, p.box); };
  std::vector<View> in;
  for (const PointwiseInput& p : work.inputs) in.push_back(view_of(p));
  View out = view_of(work.output);
  switch (work.function) {
    case PointwiseFunction::layer:
      return [op = work.operation, x = in[0], out](const Exec& exec) {
        local::pointwise_forward<T, Exec>(exec, op, x, out);
      };
    case PointwiseFunction::layer_gradient:
      return [op = work.operation, value = in[0], dy = in[1], out](const Exec& exec) {
        local::pointwise_backward<T, Exec>(exec, op, value, dy, out);
      };
    case PointwiseFunction::add:
      return [in, out](const Exec& exec) {
        local::add<T, Exec>(exec, in[0], in[1], out);
        for (std::size_t k = 2; k < in.size(); ++k) local::add<T, Exec>(exec, out, in[k], out);
      };
    case PointwiseFunction::copy:
      break;
  }
  // Between boxes of different shapes, the side without spatial extents is dense and takes the shape of the other.
  const auto reshape = [](const View& flat, const View& like) {
    return local::dense_tensor<T, Exec>(flat.data(), like.extent(0), like.extent(1), like.extent(2), like.extent(3),
                                        like.extent(4));
  };
  const auto has_pixels = [](const View& v) { return v.extent(1) * v.extent(2) * v.extent(3) != 1; };
  if (has_pixels(in[0]) && !has_pixels(out)) out = reshape(out, in[0]);
  if (has_pixels(out) && !has_pixels(in[0])) in[0] = reshape(in[0], out);
  return [from = in[0], out](const Exec& exec) { local::copy<T, Exec>(exec, from, out); };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const DropoutWork& work) -> Kernel {
  const local::DropoutMask mask{
      .seed = dropout_seed_, .rate = work.rate, .extents = work.extents.values, .first = work.region.lo};
  // The number of the step is read at each run, and reaches the kernel by value.
  return [this, mask, layer = work.layer, from = memory_.template view<T>(plan, work.source, work.region),
          to = memory_.template view<T>(plan, work.target, work.region)](const Exec& exec) {
    local::DropoutMask of_step = mask;
    of_step.stream = local::dropout_stream(layer, dropout_step_);
    local::dropout<T, Exec>(exec, of_step, from, to);
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const LossWork& work) -> Kernel {
  const auto sums = memory_.template flat<double>(plan, work.sums);
  // One all-reduce sums the gradients and the loss: in training the loss also goes behind the gradients.
  const bool trains = work.gradient != no_buffer;
  Flat<Parameter> tail;
  if (trains) {
    const auto& all = parameters_->gradients();
    tail = Kokkos::subview(
        all, Kokkos::make_pair(all.extent(0) - static_cast<std::size_t>(AllParameters::tail), all.extent(0)));
  }
  const auto append = [sums, tail, trains](const Exec& exec) {
    if (trains) append_loss<Parameter, Exec>(exec, tail, sums);
  };
  const auto global = memory_.template flat<double>(plan, work.global);
  if (work.stage == LossStage::sums && (work.region.empty() || !work.is_first_copy))
    return [global](const Exec& exec) { Kokkos::deep_copy(exec, global, 0.0); };
  if (work.region.empty()) {
    if (work.stage == LossStage::rest) {
      return [global, sums, append, share = work.share](const Exec& exec) {
        local::dice_loss<Exec>(exec, share, global, sums);
        append(exec);
      };
    }
    return [sums, append](const Exec& exec) {
      Kokkos::deep_copy(exec, sums, 0.0);
      append(exec);
    };
  }
  const View y = memory_.template view<T>(plan, work.output, work.region);
  const View dy = work.gradient == no_buffer ? View{} : memory_.template view<T>(plan, work.gradient, work.region);
  const auto finish = [sums, append, is_first_copy = work.is_first_copy](const Exec& exec) {
    if (!is_first_copy) Kokkos::deep_copy(exec, sums, 0.0);
    append(exec);
  };
  const double smoothing = work.smoothing;
  // The scale of the loss is read at each run.
  const auto scale = [this, scales = work.scales_loss](double factor) {
    return scales ? factor * parameters_->loss_scale() : factor;
  };
  const auto mean_scale = [scale, factor = work.scale] { return scale(factor); };
  switch (targets_of(work.loss)) {
    case LossTargets::sample_labels:
      return [y, dy, sums, finish, mean_scale, smoothing,
              labels = memory_.template flat<std::int32_t>(plan, work.targets)](const Exec& exec) {
        local::softmax_cross_entropy<T, Exec>(exec, y, labels, mean_scale(), dy, sums, smoothing);
        finish(exec);
      };
    case LossTargets::pixel_labels:
      return [y, dy, sums, finish, mean_scale, smoothing,
              labels = memory_.template view<std::int32_t>(plan, work.targets)](const Exec& exec) {
        local::pixel_cross_entropy<T, Exec>(exec, y, labels, mean_scale(), dy, sums, smoothing);
        finish(exec);
      };
    case LossTargets::elements:
      break;
  }
  const View targets = memory_.template view<T>(plan, work.targets);
  if (work.stage == LossStage::sums)
    return [y, targets, global](const Exec& exec) { local::dice_sums<T, Exec>(exec, y, targets, global); };
  if (work.stage == LossStage::rest) {
    return [y, dy, targets, global, sums, append, scale, share = work.share](const Exec& exec) {
      if (dy.size() > 0) local::dice_gradient<T, Exec>(exec, y, targets, global, scale(1), dy);
      local::dice_loss<Exec>(exec, share, global, sums);
      append(exec);
    };
  }
  if (work.loss == Loss::mean_squared_error) {
    return [y, dy, targets, sums, finish, mean_scale](const Exec& exec) {
      local::mean_squared_error<T, Exec>(exec, y, targets, mean_scale(), dy, sums);
      finish(exec);
    };
  }
  return [y, dy, targets, sums, finish, mean_scale](const Exec& exec) {
    local::binary_cross_entropy_with_logits<T, Exec>(exec, y, targets, mean_scale(), dy, sums);
    finish(exec);
  };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const MetricsWork& work) -> Kernel {
  const auto sums = memory_.template flat<double>(plan, work.sums);
  if (work.region.empty() || !work.is_first_copy)
    return [sums](const Exec& exec) { Kokkos::deep_copy(exec, sums, 0.0); };
  const View y = memory_.template view<T>(plan, work.output, work.region);
  switch (targets_of(work.loss)) {
    case LossTargets::sample_labels:
      return [y, sums, labels = memory_.template flat<std::int32_t>(plan, work.targets)](const Exec& exec) {
        local::top_matches<T, Exec>(exec, y, labels, 5, sums);
      };
    case LossTargets::pixel_labels:
      return [y, sums, labels = memory_.template view<std::int32_t>(plan, work.targets)](const Exec& exec) {
        local::class_overlaps<T, Exec>(exec, y, labels, sums);
      };
    case LossTargets::elements:
      break;
  }
  const View targets = memory_.template view<T>(plan, work.targets);
  if (work.loss == Loss::mean_squared_error)
    return [y, targets, sums](const Exec& exec) { local::absolute_errors<T, Exec>(exec, y, targets, sums); };
  return [y, targets, sums](const Exec& exec) { local::foreground_overlap<T, Exec>(exec, y, targets, sums); };
}

template <class T, class Exec>
auto Binder<T, Exec>::kernel(const StepPlan& plan, const OffloadWork& work) -> Kernel {
  const auto bytes = static_cast<std::size_t>(plan.buffers[static_cast<std::size_t>(work.buffer)].bytes());
  const Kokkos::View<std::byte*, Mem> buffer(memory_.template data<std::byte>(plan, work.buffer), bytes);
  const Kokkos::View<std::byte*, typename PlanMemory<Exec>::HostMem> host(
      memory_.template data<std::byte>(plan, work.host), bytes);
  if (work.back) return [buffer, host](const Exec& exec) { Kokkos::deep_copy(exec, buffer, host); };
  return [buffer, host](const Exec& exec) { Kokkos::deep_copy(exec, host, buffer); };
}

#define INSTANTIATE(T, Exec)                                                                \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const PoolingWork&)->Kernel;       \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const ResamplingWork&)->Kernel;    \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const GlobalAverageWork&)->Kernel; \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const NormalisationWork&)->Kernel; \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const DenseWork&)->Kernel;         \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const PointwiseWork&)->Kernel;     \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const DropoutWork&)->Kernel;       \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const LossWork&)->Kernel;          \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const MetricsWork&)->Kernel;       \
  template auto Binder<T, Exec>::kernel(const StepPlan&, const OffloadWork&)->Kernel;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
