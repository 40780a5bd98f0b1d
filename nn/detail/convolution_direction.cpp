#include <aloni/nn/detail/convolution_direction.hpp>

#include <algorithm>
#include <utility>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;

Box with_range(Box box, Dim d, Index lo, Index hi) {
  box.set(d, lo, hi);
  return box;
}

Box with_channels(const Box& box, const halo::Range& channels) {
  return with_range(box, Dim::channel, channels.lo, channels.hi);
}

Box channels_of(const Box& box) {
  return {{0, 0, 0, 0, box.lower(Dim::channel)}, {1, 1, 1, 1, box.upper(Dim::channel)}};
}

bool is_dense(const Box& part, const Box& memory) {
  if (part.empty()) return true;
  Index stride = 1, expected = 1;
  for (int i = views::num_dims - 1; i >= 0; --i) {
    const Dim d = views::all_dims[static_cast<std::size_t>(i)];
    if (part.extent(d) != 1 && stride != expected) return false;
    expected *= part.extent(d);
    stride *= memory.extent(d);
  }
  return true;
}

Index pixels(const Box& b) { return b.size() == 0 ? 0 : b.size() / b.extent(Dim::channel); }

Dim outermost(const Box& box) {
  for (const Dim d : views::all_dims)
    if (box.extent(d) > 1) return d;
  return Dim::sample;
}

Box chunk_of(const Box& box, Dim d, int k, int count) {
  const Index extent = box.extent(d), lo = box.lower(d);
  return with_range(box, d, lo + extent * k / count, lo + extent * (k + 1) / count);
}

namespace {

/// Whether the layer multiplies one pixel of each sample by the weights: a dense layer.
bool multiplies_one_pixel(const LayerPlan& plan) {
  return std::ranges::all_of(views::spatial_dims, [&](Dim d) {
    return plan.stencil[d].identity() && plan.input.extents()[d] == 1 && plan.output.extents()[d] == 1;
  });
}

}  // namespace

local::ConvolutionProblem problem_of(const LayerPlan& plan, const ConvolutionPart& part, const Box& x, const Box& y) {
  const bool transposed = plan.convolution->transposed;
  // A transposed convolution is a convolution from y to x.
  const Box& from = transposed ? y : x;
  const Box& to = transposed ? x : y;
  local::ConvolutionProblem p;
  p.samples = y.extent(Dim::sample);
  p.channels = from.extent(Dim::channel);
  p.filters = to.extent(Dim::channel);
  p.groups = part.groups;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const halo::Stencil1D& s = plan.stencil[d];
    p.input[i] = from.extent(d);
    p.output[i] = to.extent(d);
    p.kernel[i] = s.kernel;
    p.stride[i] = s.stride;
    p.dilation[i] = s.dilation;
    p.offset[i] = local::local_offset(to.lower(d), from.lower(d), s.stride, s.pad_low);
  }
  // As the pixels of one sample, samples share a load of the weights.
  if (multiplies_one_pixel(plan)) p.input[2] = p.output[2] = std::exchange(p.samples, 1);
  return p;
}

halo::Range Direction::interior(int rank, const Box& work, Dim dim) const {
  const Box own = source().owned(rank);
  Index lo = work.lower(dim), hi = work.upper(dim);
  for (Index i = work.lower(dim); i < work.upper(dim); ++i) {
    // With a stride an index may need nothing while its neighbours do.
    const Box needed = needed_for(with_range(work, dim, i, i + 1), rank);
    if (needed.empty()) continue;
    if (needed.lower(dim) < own.lower(dim)) lo = i + 1;
    if (needed.upper(dim) > own.upper(dim)) hi = std::min(hi, i);
  }
  return {lo, hi};
}

std::pair<std::vector<Box>, std::vector<Box>> Direction::interior_first(int rank, const Box& work) const {
  std::vector<Box> inside, border;
  if (work.empty()) return {inside, border};
  // Slabs along the outermost spatial dimension are split off. Faces of the other dimensions are computed again.
  Box rest = work;
  bool slabs = true;
  for (const Dim dim : views::spatial_dims) {
    if (work.extent(dim) == 1 && slabs) {
      // A dimension with one index has no interior if this index needs ghosts.
      if (interior(rank, work, dim).empty()) return {{}, {work}};
      continue;
    }
    const halo::Range inner = interior(rank, rest, dim);
    if (inner.empty()) return {{}, {work}};
    if (inner.lo > rest.lower(dim)) border.push_back(with_range(rest, dim, rest.lower(dim), inner.lo));
    if (inner.hi < rest.upper(dim)) border.push_back(with_range(rest, dim, inner.hi, rest.upper(dim)));
    if (slabs) inside = {with_range(rest, dim, inner.lo, inner.hi)};
    rest = with_range(rest, dim, inner.lo, inner.hi);
    slabs = false;
  }
  if (inside.empty()) inside = {rest};
  return {inside, border};
}

double Direction::overhead(int rank, const Box& work, double pixels_per_call) const {
  const auto [interior, border] = interior_first(rank, work);
  if (interior.empty()) return work.empty() ? 0.0 : 1.0;
  Index computed = 0, calls = 0;
  for (const std::vector<Box>& list : {interior, border}) {
    for (const Box& box : list) {
      computed += pixels(box);
      calls += box.extent(Dim::sample);
    }
  }
  const Index twice = computed - pixels(work);
  return (static_cast<double>(calls - 1) * pixels_per_call + static_cast<double>(2 * twice)) /
         static_cast<double>(pixels(work));
}

}  // namespace aloni::nn::detail
