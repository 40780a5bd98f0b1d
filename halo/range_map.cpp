#include <aloni/halo/range_map.hpp>

#include <aloni/core/error.hpp>

namespace aloni::halo {

void RangeMap1D::check(const std::string& operation) const {
  const auto refuse_unless = [&](bool fine, const char* argument, Index value, const std::string& expectation) {
    if (!fine) throw InvalidArgument(operation, argument, std::to_string(value), expectation);
  };
  refuse_unless(inputs >= 1, "inputs", inputs, "at least 1");
  refuse_unless(outputs >= 1, "outputs", outputs, "at least 1");
  const std::string bound = "at most " + std::to_string(largest) + " unless inputs equal outputs";
  refuse_unless(identity() || inputs <= largest, "inputs", inputs, bound);
  refuse_unless(identity() || outputs <= largest, "outputs", outputs, bound);
}

void RangeMap::check(const std::string& operation) const {
  for (views::Dim d : views::all_dims) {
    const std::string where = operation + ", " + views::name(d);
    if ((d == views::Dim::sample || d == views::Dim::channel) && !(*this)[d].identity()) {
      throw InvalidArgument(where, "outputs", std::to_string(outputs[d]),
                            std::to_string(inputs[d]) + ", as the input: only depth, height and width may change");
    }
    (*this)[d].check(where);
  }
}

views::Box RangeMap::input_box(const views::Box& output) const {
  if (output.empty()) return {};
  views::Box box;
  for (views::Dim d : views::all_dims) {
    const Range r = (*this)[d].input_range(output.lower(d), output.upper(d));
    box.set(d, r.lo, r.hi);
  }
  return box;
}

views::Box RangeMap::output_box(const views::Box& input) const {
  if (input.empty()) return {};
  views::Box box;
  for (views::Dim d : views::all_dims) {
    const Range r = (*this)[d].output_range(input.lower(d), input.upper(d));
    if (r.empty()) return {};
    box.set(d, r.lo, r.hi);
  }
  return box;
}

}  // namespace aloni::halo
