#include <aloni/nn/local/resampling_problem.hpp>

#include <aloni/core/error.hpp>

#include <cstdint>
#include <limits>

namespace aloni::nn::local {

namespace {

const char* name(halo::RangeRule rule) {
  switch (rule) {
    case halo::RangeRule::adaptive:
      return "adaptive";
    case halo::RangeRule::nearest:
      return "nearest";
    case halo::RangeRule::linear:
      break;
  }
  return "linear";
}

std::string interval(Index lower, Index extent, Index of) {
  return "[" + std::to_string(lower) + "," + std::to_string(lower + extent) + ") of " + std::to_string(of);
}

}  // namespace

std::string to_string(const ResamplingProblem& p) {
  std::string from, to;
  for (int s = 0; s < 3; ++s) {
    from += (s > 0 ? ", " : "") + interval(p.input_lower[s], p.input[s], p.map[s].inputs);
    to += (s > 0 ? ", " : "") + interval(p.output_lower[s], p.output[s], p.map[s].outputs);
  }
  return std::to_string(p.samples) + "x(" + from + ")x" + std::to_string(p.channels) + " -> (" + to + "), " +
         name(p.map[0].rule);
}

void validate(const ResamplingProblem& p) {
  constexpr const char* operation = "aloni::nn::local::ResamplingProblem";
  const auto check = [&](bool fine, const char* argument, const std::string& value, const std::string& expectation) {
    if (!fine) throw InvalidArgument(operation, argument, value, expectation);
  };
  const auto lies_within = [](Index lower, Index extent, Index of) {
    return extent >= 0 && lower >= 0 && extent <= of && lower <= of - extent;
  };
  check(p.samples >= 0, "samples", std::to_string(p.samples), "0 or more");
  check(p.channels >= 0, "channels", std::to_string(p.channels), "0 or more");
  bool reads = p.samples > 0 && p.channels > 0;
  for (int s = 0; s < 3; ++s) reads = reads && p.output[s] > 0;
  Index elements = 1;
  for (int s = 0; s < 3; ++s) {
    const halo::RangeMap1D& m = p.map[s];
    m.check(operation);
    check(m.rule == p.map[0].rule, "map", name(m.rule),
          std::string("the rule of the first dimension, ") + name(p.map[0].rule));
    check(p.output[s] == 0 || lies_within(p.output_lower[s], p.output[s], m.outputs), "output",
          interval(p.output_lower[s], p.output[s], m.outputs), "a part of the tensor");
    check(p.input[s] == 0 || lies_within(p.input_lower[s], p.input[s], m.inputs), "input",
          interval(p.input_lower[s], p.input[s], m.inputs), "a part of the tensor");
    if (reads) {
      const halo::Range needed = m.input_range(p.output_lower[s], p.output_lower[s] + p.output[s]);
      check(needed.lo >= p.input_lower[s] && needed.hi <= p.input_lower[s] + p.input[s], "input",
            interval(p.input_lower[s], p.input[s], m.inputs),
            "all of [" + std::to_string(needed.lo) + "," + std::to_string(needed.hi) + "), the inputs of the outputs");
    }
    check(m.longest_window() <= std::numeric_limits<std::int32_t>::max() / elements, "map",
          std::to_string(m.longest_window()), "at most 2^31 - 1 elements in one window");
    elements *= m.longest_window();
  }
}

}  // namespace aloni::nn::local
