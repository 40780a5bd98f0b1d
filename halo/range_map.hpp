#pragma once
// Which inputs an output reads where the windows have no constant stride, because the number of outputs is given instead of a
// stride: the counterpart of halo/stencil.hpp for adaptive pooling and for interpolation.
//
//   const RangeMap1D rows{RangeRule::adaptive, 10, 4};
//   rows.window(1);            // [2, 5)
//   rows.input_range(1, 3);    // [2, 8): what outputs 1 and 2 read
//   rows.output_range(5, 8);   // [2, 4): the outputs that read any of the inputs 5 to 7
//
// All is computed in integers from global indices, weights with one rounding at their end: whichever rank computes an output finds
// the same inputs and the same bits of the weights. Windows are intervals inside the domain, and neither end of them ever moves back from
// one output to the next; so what a range of outputs reads is an interval, and so is what reads a range of inputs.
#include <aloni/halo/stencil.hpp>
#include <aloni/views/box.hpp>

#include <string>

namespace aloni::halo {

/// What output o of `outputs` reads of `inputs`. Each rule is the identity where both are equal.
enum class RangeRule {
  adaptive,  ///< [floor(o·inputs / outputs), ceil((o + 1)·inputs / outputs)): a partition with overlaps of one element at most
  nearest,  ///< floor(o·inputs / outputs)
  linear  ///< the neighbours of (o + ½)·inputs / outputs − ½ that have weight; beyond the first and the last input these alone
};

/// @pre of all members: 1 ≤ inputs, outputs; both ≤ largest, unless they are equal. Members are meant for kernels too: they check nothing.
struct RangeMap1D {
  /// Above this the products of the formulas would leave 64 bits.
  static constexpr Index largest = Index{1} << 30;

  RangeRule rule = RangeRule::nearest;
  Index inputs = 1, outputs = 1;

  constexpr bool identity() const { return inputs == outputs; }

  /// Throws InvalidArgument naming `operation` when the precondition of the members does not hold.
  void check(const std::string& operation) const;

  /// What output o reads; never empty. @pre 0 ≤ o < outputs
  constexpr Range window(Index o) const {
    if (identity()) return {o, o + 1};
    if (rule == RangeRule::adaptive) return {o * inputs / outputs, ceil_div((o + 1) * inputs, outputs)};
    if (rule == RangeRule::nearest) return {o * inputs / outputs, o * inputs / outputs + 1};
    const Index place = twice_place(o), first = place / (2 * outputs);
    return {first, first + (place % (2 * outputs) > 0 && first + 1 < inputs ? 2 : 1)};
  }

  /// The factor of input i in output o: below 1 only with the linear rule. @pre i in window(o)
  constexpr double weight(Index o, Index i) const {
    if (identity() || rule != RangeRule::linear) return 1;
    const Index place = twice_place(o), first = place / (2 * outputs), rest = place % (2 * outputs);
    if (first + 1 >= inputs) return 1;
    return static_cast<double>(i == first ? 2 * outputs - rest : rest) / static_cast<double>(2 * outputs);
  }

  /// From the first to the last input that the outputs [lo, hi) read; empty for no outputs. @pre 0 ≤ lo, hi ≤ outputs
  constexpr Range input_range(Index lo, Index hi) const {
    if (hi <= lo) return {};
    return {window(lo).lo, window(hi - 1).hi};
  }

  /// From the first to the last output that reads any of the inputs [lo, hi), which may reach over the domain; empty when none does.
  constexpr Range output_range(Index lo, Index hi) const {
    if (lo < 0) lo = 0;
    if (hi > inputs) hi = inputs;
    if (hi <= lo) return {};
    const Range found{first_reader(lo), past_readers(hi - 1)};
    return found.empty() ? Range{} : found;
  }

  /// An upper bound of the number of inputs that one output reads; attained where outputs divides inputs.
  constexpr Index longest_window() const {
    if (identity() || rule == RangeRule::nearest) return 1;
    if (rule == RangeRule::linear) return 2;
    return inputs / outputs + (inputs % outputs > 0 ? 2 : 0);
  }

  friend constexpr bool operator==(const RangeMap1D&, const RangeMap1D&) = default;

 private:
  static constexpr Index at_least_0(Index a) { return a > 0 ? a : 0; }

  /// 2·outputs times the place of output o among the inputs, half-pixel centres, none before the first input.
  constexpr Index twice_place(Index o) const { return at_least_0((2 * o + 1) * inputs - outputs); }

  /// The first output whose window ends behind input i.
  constexpr Index first_reader(Index i) const {
    if (identity()) return i;
    if (rule == RangeRule::adaptive) return i * outputs / inputs;
    if (rule == RangeRule::nearest) return ceil_div(i * outputs, inputs);
    // The place is above i − 1: (2o + 1)·inputs − outputs > 2·outputs·(i − 1). Input 0 is in the window of the first output.
    return i == 0 ? 0 : at_least_0(floor_div((2 * i - 1) * outputs - inputs, 2 * inputs) + 1);
  }
  /// One past the last output whose window begins at input i or before.
  constexpr Index past_readers(Index i) const {
    if (identity()) return i + 1;
    if (rule != RangeRule::linear) return ceil_div((i + 1) * outputs, inputs);
    // The place is below i + 1: (2o + 1)·inputs − outputs < 2·outputs·(i + 1).
    const Index end = at_least_0(ceil_div((2 * i + 3) * outputs - inputs, 2 * inputs));
    return end < outputs ? end : outputs;
  }
};

/// One rule for a tensor; sample and channel stay as they are.
struct RangeMap {
  RangeRule rule = RangeRule::nearest;
  views::Extents inputs, outputs;

  constexpr RangeMap1D operator[](views::Dim d) const { return {rule, inputs[d], outputs[d]}; }

  /// @pre every dimension is valid, samples and channels are as many. Throws InvalidArgument naming the dimension.
  void check(const std::string& operation) const;
  /// What the outputs of a box, which lies in the tensor, read. Empty for an empty box.
  views::Box input_box(const views::Box& output) const;
  /// The outputs that read anything of a box. Empty for an empty box, and where none does.
  views::Box output_box(const views::Box& input) const;

  friend constexpr bool operator==(const RangeMap&, const RangeMap&) = default;
};

}  // namespace aloni::halo
