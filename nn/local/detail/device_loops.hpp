#pragma once
// Loops of a device over all pixels of a tensor, for kernels that read constants of a channel or add up channels.
//
// Neighbouring threads have neighbouring channels, hence neighbouring memory. A thread has one channel. It reads the
// constants of the channel once, and steps from pixel to pixel without divisions. With one thread per element, the
// divisions of 64 bits took longer than the memory.
#include <aloni/nn/local/detail/execution.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace aloni::nn::local::detail {

/// The place of a pixel.
struct PixelPlace {
  Index n = 0, d = 0, h = 0, w = 0;

  KOKKOS_FUNCTION PixelPlace(const Rows& rows, Index pixel) : w(pixel % rows.width) {
    rows.row(pixel / rows.width, n, d, h);
  }
  KOKKOS_FUNCTION void advance(const Rows& rows, Index pixels) {
    for (w += pixels; w >= rows.width;) {
      w -= rows.width;
      if (++h < rows.height) continue;
      h = 0;
      if (++d < rows.depth) continue;
      d = 0;
      ++n;
    }
  }
};

/// One index is a channel and every `step`-th pixel of a chunk of pixels.
template <class Kernel>
struct EachPixelOfChannel {
  Kernel kernel;
  Index pixels, step, pixels_of_thread;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index c = i % kernel.rows.channels, line = i / kernel.rows.channels;
    const Index begin = line / step * step * pixels_of_thread + line % step;
    if (begin >= pixels) return;
    const auto constants = kernel.constants(c);
    PixelPlace place(kernel.rows, begin);
    Index pixel = begin;
    for (Index k = 0; k < pixels_of_thread && pixel < pixels; ++k, pixel += step) {
      kernel.pixel(place, c, constants);
      place.advance(kernel.rows, step);
    }
  }
};

/// kernel.pixel(place, c, kernel.constants(c)) for each pixel and channel of kernel.rows.
template <class Exec, class Kernel>
void for_each_pixel_of_channel(const Exec& exec, const char* label, const Kernel& kernel) {
  constexpr Index threads_side_by_side = 256, enough_threads = 1 << 19, most_pixels_of_thread = 16;
  const Index channels = kernel.rows.channels, pixels = kernel.rows.rows() * kernel.rows.width;
  const Index step = channels < threads_side_by_side ? threads_side_by_side / channels : 1;
  const Index each = Kokkos::clamp<Index>(pixels * channels / enough_threads, 1, most_pixels_of_thread);
  const Index chunk = step * each, chunks = (pixels + chunk - 1) / chunk;
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, chunks * step * channels),
                       EachPixelOfChannel<Kernel>{kernel, pixels, step, each});
}

/// The threads of a team: lines of pixels × lanes of channels. Threads left over do nothing.
struct TeamTable {
  static constexpr Index most_lanes = 32;  ///< 64 bytes of bfloat16 in each pixel

  Index channels, blocks, lanes, lines;

  TeamTable(Index threads, Index channels_of_tensor) : channels(channels_of_tensor) {
    const Index most = threads < most_lanes ? threads : most_lanes;
    blocks = (channels + most - 1) / most;
    lanes = (channels + blocks - 1) / blocks;
    lines = threads / lanes;
  }
  /// The place of a thread of a team that has the given block of channels. False: nothing to do.
  KOKKOS_FUNCTION bool place(Index thread, Index block, Index& line, Index& channel) const {
    line = thread / lanes;
    channel = block * lanes + thread % lanes;
    return line < lines && channel < channels;
  }
};

template <class Exec, class Kernel>
struct ChannelSumsOfShare {
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::IndexType<Index>>;

  Kernel kernel;
  TeamTable table;

  KOKKOS_FUNCTION void operator()(const typename Policy::member_type& team) const {
    const Index share = team.league_rank() / table.blocks, width = kernel.rows.width;
    const Index begin = kernel.shares.begin(share) * width, end = kernel.shares.end(share) * width;
    const Index thread = team.team_rank(), threads = team.team_size();
    Index line = 0, c = 0;
    const bool works = table.place(thread, team.league_rank() % table.blocks, line, c);
    double first = 0, second = 0;
    if (works && begin + line < end) {
      const auto constants = kernel.constants(c);
      PixelPlace place(kernel.rows, begin + line);
      for (Index p = begin + line; p < end; p += table.lines) {
        kernel.add(place, c, constants, first, second);
        place.advance(kernel.rows, table.lines);
      }
    }
    auto* const sums =
        static_cast<double*>(team.team_shmem().get_shmem(static_cast<std::ptrdiff_t>(2 * sizeof(double)) * threads));
    sums[thread] = first;
    sums[threads + thread] = second;
    team.team_barrier();
    if (!works || line > 0) return;
    for (Index t = thread + table.lanes; t < table.lanes * table.lines; t += table.lanes) {
      first += sums[t];
      second += sums[threads + t];
    }
    double* const partial = kernel.partial.data() + share * 2 * table.channels;
    partial[c] = first;
    partial[table.channels + c] = second;
  }
};

/// kernel.add(place, c, kernel.constants(c), first, second) for each pixel and channel of each share of kernel.shares.
/// The sums of a share go to kernel.partial: `first` of all channels, then `second`. `threads`: of a team.
template <class Exec, class Kernel>
void sum_channels_of_shares(const Exec& exec, const char* label, const Kernel& kernel, Index threads = 512) {
  using Sums = ChannelSumsOfShare<Exec, Kernel>;
  if (kernel.shares.total() == 0 || kernel.rows.channels == 0) return;
  const TeamTable table(threads, kernel.rows.channels);
  typename Sums::Policy policy(exec, static_cast<int>(kernel.shares.total() * table.blocks), static_cast<int>(threads));
  // Kokkos allocates slow scratch memory in each call that asks for none, and keeps it from one that asks for some.
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(2 * sizeof(double)) * static_cast<int>(threads)))
      .set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(sizeof(double))));
  // As in Range: the functor reaches the device as arguments.
  Kokkos::parallel_for(label,
                       Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight),
                       Sums{kernel, table});
}

}  // namespace aloni::nn::local::detail
