#include <aloni/halo/stencil.hpp>

#include <aloni/core/error.hpp>

namespace aloni::halo {

void Stencil1D::check(const std::string& operation) const {
  const auto check_from = [&](const char* argument, Index value, Index least) {
    if (value < least || value > max_width)
      throw InvalidArgument(operation, argument, std::to_string(value),
                            "from " + std::to_string(least) + " to " + std::to_string(max_width));
  };
  check_from("kernel", kernel, 1);
  check_from("stride", stride, 1);
  check_from("dilation", dilation, 1);
  check_from("pad_low", pad_low, 0);
  check_from("pad_high", pad_high, 0);
}

Index Stencil1D::output_extent(Index input) const {
  check("aloni::halo::Stencil1D::output_extent");
  if (input < 0 || input > max_elements)
    throw InvalidArgument("aloni::halo::Stencil1D::output_extent", "input", std::to_string(input),
                          "an extent from 0 to " + std::to_string(max_elements));
  const Index padded = input + pad_low + pad_high;
  if (padded < reach())
    throw InvalidArgument("aloni::halo::Stencil1D::output_extent", "input", std::to_string(input),
                          "an extent that, with padding " + std::to_string(pad_low) + " + " + std::to_string(pad_high) +
                              ", holds one window of " + std::to_string(reach()));
  return (padded - reach()) / stride + 1;
}

Range Stencil1D::output_range(Index lo, Index hi, Index outputs) const {
  if (hi <= lo) return {};
  // First the outputs whose windows overlap [lo, hi). With dilation or stride > kernel, such a window may still skip
  // the whole interval. So both ends move inwards to outputs that read an input of the interval.
  Index first = ceil_div(lo + pad_low - reach() + 1, stride);
  Index last = floor_div(hi - 1 + pad_low, stride);
  if (first < 0) first = 0;
  if (last > outputs - 1) last = outputs - 1;
  const auto reads = [&](Index output) {
    const Index begin = output * stride - pad_low;
    const Index k = begin >= lo ? 0 : ceil_div(lo - begin, dilation);
    return k < kernel && begin + k * dilation < hi;
  };
  while (first <= last && !reads(first)) ++first;
  while (first <= last && !reads(last)) --last;
  return first <= last ? Range{first, last + 1} : Range{};
}

void Stencil::check(const std::string& operation) const {
  for (views::Dim d : views::all_dims) {
    const std::string where = operation + ", " + views::name(d);
    (*this)[d].check(where);
    if ((d == views::Dim::sample || d == views::Dim::channel) && !(*this)[d].identity())
      throw InvalidArgument(
          where, "kernel", std::to_string((*this)[d].kernel),
          "the identity (kernel 1, stride 1, no padding): windows slide over depth, height and width only");
  }
}

views::Extents Stencil::output_extents(const views::Extents& input) const {
  check("aloni::halo::Stencil::output_extents");
  views::Extents out = input;
  for (views::Dim d : views::spatial_dims) {
    try {
      out[d] = (*this)[d].output_extent(input[d]);
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(std::string("aloni::halo::Stencil::output_extents, ") + views::name(d), e.argument(),
                            e.value(), e.expectation());
    }
  }
  return out;
}

views::Box Stencil::input_box(const views::Box& output) const {
  if (output.empty()) return {};
  views::Box box;
  for (views::Dim d : views::all_dims) {
    const Range r = (*this)[d].input_range(output.lower(d), output.upper(d));
    box.set(d, r.lo, r.hi);
  }
  return box;
}

views::Box Stencil::output_box(const views::Box& input, const views::Extents& outputs) const {
  if (input.empty()) return {};
  views::Box box;
  for (views::Dim d : views::all_dims) {
    const Range r = (*this)[d].output_range(input.lower(d), input.upper(d), outputs[d]);
    if (r.empty()) return {};
    box.set(d, r.lo, r.hi);
  }
  return box;
}

}  // namespace aloni::halo
