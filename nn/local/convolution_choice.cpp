#include <aloni/nn/local/convolution_choice.hpp>

#include <aloni/nn/local/detail/onednn_problem.hpp>

namespace aloni::nn::local {

namespace {

/// Whether oneDNN is faster than the direct kernels. Its vectors hold 16 channels of the result of a pass and should be
/// full: it is fast at reading a few channels, but slow at writing them. The direct backward-filter keeps all sums of a
/// thread in the cache. It is faster while the sums fit in the second-level cache and two vectors share each value of
/// x. Speed of oneDNN 2.6 divided by the speed of the direct kernels on two cores with AVX-512 (bench_conv), channels →
/// filters:
///                       forward   backward-data   backward-filter
///   3→64, 7×7              1.1         0.5              0.9
///   18→128, 5×5            1.2         0.6              0.6
///   64→64, 3×3             1.15        1.2              0.93
///   64→32, 3×3             1.2         1.3              1.0
///   32→32, 3×3×3           1.3         1.1              0.95
///   32→16, 3×3×3           1.35        1.1              1.45
///   384→128, 3×3           1.5         1.3              1.3
///   512→128, 1×1           1.1         1.15             1.5
/// and 1→16 0.7 forward. Both give the same bits if sums are exact, so the choice changes only the time.
bool suits_onednn(const ConvolutionProblem& p, ConvolutionPass pass, Index cached_bytes) {
  if (p.groups > 1 && p.channels == p.groups)
    return false;  // vectors over all channels: direct is as fast, and no copies
  const Index channels_of_group = p.channels_per_group(), filters_of_group = p.filters_per_group();
  const bool channels = channels_of_group >= 16 && channels_of_group % 16 == 0;
  const bool filters = filters_of_group >= 16 && filters_of_group % 16 == 0;
  const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2];
  const Index sum_bytes = taps * channels_of_group * filters_of_group * Index{sizeof(float)};
  switch (pass) {
    case ConvolutionPass::forward:
      return filters && (channels_of_group > 3 || (channels_of_group > 1 && filters_of_group > 16));
    case ConvolutionPass::backward_data:
      return channels;
    case ConvolutionPass::backward_filter:
      return channels && filters && (taps == 1 || filters_of_group < 32 || sum_bytes > cached_bytes);
  }
  return false;
}

}  // namespace

ConvolutionBackend choose_backend(const ConvolutionProblem& p, ConvolutionPass pass, ElementType type,
                                  const MachineDescription& machine) {
  if (!machine.on_host) {
    if (machine.cudnn) return ConvolutionBackend::cudnn;
    // One thread per element reads contiguous channels. A matrix product for each channel would have one column only.
    const bool depthwise = p.groups > 1 && p.channels == p.groups;
    if (depthwise && pass != ConvolutionPass::backward_filter) return ConvolutionBackend::reference;
    return machine.kokkos_kernels ? ConvolutionBackend::kokkos_kernels : ConvolutionBackend::reference;
  }
  if (type == ElementType::bfloat16) return ConvolutionBackend::onednn;
  if (type == ElementType::float32 && machine.onednn && suits_onednn(p, pass, machine.filter_gradient_bytes) &&
      !detail::onednn_refusal(detail::padded_problem(p), pass, detail::OnednnActivations::float32))
    return ConvolutionBackend::onednn;
  return ConvolutionBackend::direct;
}

}  // namespace aloni::nn::local
