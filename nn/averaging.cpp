#include <aloni/nn/averaging.hpp>

#include <aloni/core/error.hpp>

namespace aloni::nn {

void check(const Averaging& averaging, const std::string& operation) {
  if (averaging.decay >= 0 && averaging.decay < 1) return;
  throw InvalidArgument(operation, "decay of the average", std::to_string(averaging.decay), "a number in [0, 1)");
}

}  // namespace aloni::nn
