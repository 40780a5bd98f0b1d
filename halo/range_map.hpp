#pragma once
// Which inputs an output reads if the number of outputs is given instead of a stride: the counterpart of
// halo/stencil.hpp for adaptive pooling and interpolation.
//
//   const RangeMap1D rows{RangeRule::adaptive, 10, 4};
//   rows.window(1);            // [2, 5)
//   rows.input_range(1, 3);    // [2, 8): the inputs that outputs 1 and 2 read
//   rows.output_range(5, 8);   // [2, 4): the outputs that read any of the inputs 5 to 7
//
// Everything is computed in integers from global indices; a weight is rounded once, at its end. So each rank finds the
// same inputs and the same bits of the weights for an output. Windows are intervals inside the domain. From one output
// to the next, neither end of the window moves back. So the inputs of a range of outputs are an interval, and vice
// versa.
#include <aloni/halo/stencil.hpp>
#include <aloni/views/box.hpp>

#include <string>

namespace aloni::halo {

/// The inputs that output o reads. Each rule is the identity if inputs == outputs.
enum class RangeRule {
  /// [floor(o·inputs / outputs), ceil((o + 1)·inputs / outputs)): a partition with overlaps of at most one element
  adaptive,
  nearest,  ///< floor(o·inputs / outputs)
  /// The neighbours of (o + ½)·inputs / outputs − ½ with weight above 0; before the first or behind the last input,
  /// that input alone.
  linear
};

/// @pre of all members: 1 ≤ inputs, outputs; both ≤ largest, unless they are equal. Kernels call the members too, so
/// members check nothing.
struct RangeMap1D {
  /// Larger extents could overflow 64 bits in the formulas.
  static constexpr Index largest = Index{1} << 30;

  RangeRule rule = RangeRule::nearest;
  Index inputs = 1, outputs = 1;

  constexpr bool identity() const { return inputs == outputs; }

  /// Throws InvalidArgument with `operation` if the precondition of the members is violated.
  void check(const std::string& operation) const;

  /// The inputs that output o reads; never empty. @pre 0 ≤ o < outputs
  constexpr Range window(Index o) const {
    if (identity()) return {o, o + 1};
    if (rule == RangeRule::adaptive) return {o * inputs / outputs, ceil_div((o + 1) * inputs, outputs)};
    if (rule == RangeRule::nearest) return {o * inputs / outputs, o * inputs / outputs + 1};
    const Index place = twice_place(o), first = place / (2 * outputs);
    return {first, first + (place % (2 * outputs) > 0 && first + 1 < inputs ? 2 : 1)};
  }

  /// The weight of input i in output o; 1 unless the rule is linear. @pre i in window(o)
  constexpr double weight(Index o, Index i) const {
    if (identity() || rule != RangeRule::linear) return 1;
    const Index place = twice_place(o), first = place / (2 * outputs), rest = place % (2 * outputs);
    if (first + 1 >= inputs) return 1;
    return static_cast<double>(i == first ? 2 * outputs - rest : rest) / static_cast<double>(2 * outputs);
  }

  /// The inputs that the outputs [lo, hi) read; empty if hi ≤ lo. @pre 0 ≤ lo, hi ≤ outputs
  constexpr Range input_range(Index lo, Index hi) const {
    if (hi <= lo) return {};
    return {window(lo).lo, window(hi - 1).hi};
  }

  /// The outputs that read any of the inputs [lo, hi); empty if none does. The inputs may lie outside the domain.
  constexpr Range output_range(Index lo, Index hi) const {
    if (lo < 0) lo = 0;
    if (hi > inputs) hi = inputs;
    if (hi <= lo) return {};
    const Range found{first_reader(lo), past_readers(hi - 1)};
    return found.empty() ? Range{} : found;
  }

  /// Upper bound of the number of inputs that one output reads; exact if outputs divides inputs.
  constexpr Index longest_window() const {
    if (identity() || rule == RangeRule::nearest) return 1;
    if (rule == RangeRule::linear) return 2;
    return inputs / outputs + (inputs % outputs > 0 ? 2 : 0);
  }

  friend constexpr bool operator==(const RangeMap1D&, const RangeMap1D&) = default;

 private:
  static constexpr Index at_least_0(Index a) { return a > 0 ? a : 0; }

  /// 2·outputs times the position of output o among the inputs. Half-pixel centres; at least 0.
  constexpr Index twice_place(Index o) const { return at_least_0((2 * o + 1) * inputs - outputs); }

  /// The first output whose window contains input i or a later input.
  constexpr Index first_reader(Index i) const {
    if (identity()) return i;
    if (rule == RangeRule::adaptive) return i * outputs / inputs;
    if (rule == RangeRule::nearest) return ceil_div(i * outputs, inputs);
    // The position is above i − 1: (2o + 1)·inputs − outputs > 2·outputs·(i − 1). The first output reads input 0.
    return i == 0 ? 0 : at_least_0(floor_div((2 * i - 1) * outputs - inputs, 2 * inputs) + 1);
  }
  /// One past the last output whose window begins at input i or before.
  constexpr Index past_readers(Index i) const {
    if (identity()) return i + 1;
    if (rule != RangeRule::linear) return ceil_div((i + 1) * outputs, inputs);
    // The position is below i + 1: (2o + 1)·inputs − outputs < 2·outputs·(i + 1).
    const Index end = at_least_0(ceil_div((2 * i + 3) * outputs - inputs, 2 * inputs));
    return end < outputs ? end : outputs;
  }
};

/// One rule for all dimensions of a tensor; samples and channels do not change.
struct RangeMap {
  RangeRule rule = RangeRule::nearest;
  views::Extents inputs, outputs;

  constexpr RangeMap1D operator[](views::Dim d) const { return {rule, inputs[d], outputs[d]}; }

  /// @pre every dimension is valid; inputs and outputs have equal numbers of samples and of channels
  /// Throws InvalidArgument with the dimension.
  void check(const std::string& operation) const;
  /// The inputs that a box of outputs reads; empty for an empty box. @pre the box lies in the tensor
  views::Box input_box(const views::Box& output) const;
  /// The outputs that read any input of a box; empty for an empty box, and if no output does.
  views::Box output_box(const views::Box& input) const;

  friend constexpr bool operator==(const RangeMap&, const RangeMap&) = default;
};

}  // namespace aloni::halo
