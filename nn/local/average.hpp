#pragma once
// Kernels of weighted sums of parameters and gradients. Asynchronous on the given instance. float and double.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// average = decay × average + (1 - decay) × values. With decay 0 the average has the bits of the values.
/// Throws InvalidArgument unless both have one extent.
template <class T, class Exec>
void average_step(const Exec& exec, double decay, InArray<T, Exec> values, OutArray<T, Exec> average);

/// sum = keep × sum + factor × values. With keep 0 the old sum is not read.
/// Throws InvalidArgument unless both have one extent.
template <class T, class Exec>
void weighted_sum_step(const Exec& exec, double keep, double factor, InArray<T, Exec> values, OutArray<T, Exec> sum);

/// Exchanges the elements of a and b. Throws InvalidArgument unless both have one extent.
template <class T, class Exec>
void exchange(const Exec& exec, OutArray<T, Exec> a, OutArray<T, Exec> b);

}  // namespace aloni::nn::local
