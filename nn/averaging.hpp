#pragma once
// The options of an exponential moving average of the learned values (nn/weight_average.hpp). Pure.
#include <cstdint>
#include <string>

namespace aloni::nn {

/// After update t, from 1, average = d average + (1 - d) value. The average after the first update is the value.
struct Averaging {
  double decay = 0.999;  ///< d
  /// d = min(decay, (1 + t) / (10 + t)): the first values are soon forgotten, as in
  /// tf.train.ExponentialMovingAverage with num_updates.
  bool warm_up = true;
};

/// d of update `update`. @pre update ≥ 1
inline double decay_of(const Averaging& averaging, std::int64_t update) {
  if (update == 1) return 0;
  const auto t = static_cast<double>(update);
  const double rising = (1 + t) / (10 + t);
  return averaging.warm_up && rising < averaging.decay ? rising : averaging.decay;
}

/// Throws InvalidArgument for a member out of range. `operation`: for the error text.
void check(const Averaging& averaging, const std::string& operation);

}  // namespace aloni::nn
