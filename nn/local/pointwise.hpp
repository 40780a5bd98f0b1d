#pragma once
// Kernels that compute each element alone. Views of one call have equal extents (otherwise InvalidArgument) and any
// strides. So a dense result can be written into the owned part of a ghosted buffer. Asynchronous on the given
// instance. All except scale and the updates exist for comm::bfloat16 too.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/local/norms.hpp>
#include <aloni/nn/optimiser.hpp>

#include <cstdint>

namespace aloni::nn::local {

/// to = from
template <class T, class Exec>
void copy(const Exec& exec, InTensor<T, Exec> from, Tensor<T, Exec> to);
/// sum = a + b; sum may be a or b.
template <class T, class Exec>
void add(const Exec& exec, InTensor<T, Exec> a, InTensor<T, Exec> b, Tensor<T, Exec> sum);
/// to = value
template <class T, class Exec>
void fill(const Exec& exec, std::type_identity_t<T> value, Tensor<T, Exec> to);

/// to = from, rounded to the type of `to`: between float and comm::bfloat16. Between equal types it is copy().
template <class To, class From, class Exec>
void convert(const Exec& exec, InTensor<From, Exec> from, Tensor<To, Exec> to);

/// values = factor × values
template <class T, class Exec>
void scale(const Exec& exec, std::type_identity_t<T> factor, Array<T, Exec> values);

struct SgdParameters {
  double learning_rate = 0.01, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

/// velocity = momentum × velocity + (gradient + weight_decay × weights); weights -= learning_rate × velocity. With
/// `nesterov` weights -= learning_rate × (gradient + weight_decay × weights + momentum × velocity).
/// `velocity` may have extent 0 when momentum is 0.
/// `factor`: of the gradients, in all functions below; extent 1, or 0 for the factor 1. With a negative factor weights
/// and states stay.
template <class T, class Exec>
void sgd_step(const Exec& exec, const SgdParameters& parameters, InArray<T, Exec> gradient, Array<T, Exec> weights,
              OutArray<T, Exec> velocity, InArray<double, Exec> factor = {});

/// One update by Adam, with the formulas of AdamOptions. The corrections 1 - beta^step are computed in double.
/// `step`: number of the update. @pre step ≥ 1
template <class T, class Exec>
void adam_step(const Exec& exec, const AdamOptions& options, std::int64_t step, InArray<T, Exec> gradient,
               Array<T, Exec> weights, OutArray<T, Exec> first_moment, OutArray<T, Exec> second_moment,
               InArray<double, Exec> factor = {});

/// One update by LARS, with the formulas of LarsOptions. `rates`: of the tensors in the weights, in their order.
template <class T, class Exec>
void lars_step(const Exec& exec, const LarsOptions& options, InArray<T, Exec> gradient, Array<T, Exec> weights,
               OutArray<T, Exec> velocity, std::type_identity_t<TensorsOfNorms<Exec>> tensors,
               InArray<double, Exec> rates, InArray<double, Exec> factor = {});

}  // namespace aloni::nn::local
