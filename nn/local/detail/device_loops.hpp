#pragma once
// Loops of a device over all pixels of a tensor, for kernels that read constants of a channel or add up channels.
//
// Neighbouring threads have neighbouring memory. A thread has four channels where the views allow it,
// else one. It reads the constants of its channels once, and steps from pixel to pixel without divisions. With
// one thread per element, the divisions of 64 bits took longer than the memory.
//
// The bandwidth of a device times its latency are some ten KiB per multiprocessor, which must be on their way at any
// time. So a thread reads the packs of several pixels before it uses the first one.
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/pack.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace aloni::nn::local::detail {

/// The place of a pixel.
struct PixelPlace {
  Index n = 0, d = 0, h = 0, w = 0;

  PixelPlace() = default;
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

/// The pack at a pixel and its first channel. @pre has_packs<N>(view)
template <int N, class View>
KOKKOS_INLINE_FUNCTION auto read_pack(const View& view, const PixelPlace& p, Index c) {
  return load_pack<N>(&view(p.n, p.d, p.h, p.w, c));
}

/// The pixels whose values, of kernel.tensors tensors, a thread reads before it uses them: about as many bytes.
template <class Kernel, int N>
constexpr int pixels_at_once(int bytes) {
  return std::clamp(bytes / (Kernel::tensors * N * static_cast<int>(sizeof(typename Kernel::Element))), 1, 8);
}

/// One index is a pack of channels and every `step`-th pixel of a chunk of pixels.
template <class Kernel, int N>
struct EachPixelOfChannels {
  static constexpr int at_once = pixels_at_once<Kernel, N>(32);

  Kernel kernel;
  Index pixels, step, pixels_of_thread;

  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index packs = kernel.rows.channels / N;
    const Index c = i % packs * N, line = i / packs;
    const Index begin = line / step * step * pixels_of_thread + line % step;
    if (begin >= pixels) return;
    typename Kernel::Constants constants[N];
    for (int j = 0; j < N; ++j) constants[j] = kernel.constants(c + j);
    const Index limit = begin + pixels_of_thread * step, end = limit < pixels ? limit : pixels;
    PixelPlace from(kernel.rows, begin), to = from;
    for (Index pixel = begin; pixel < end; pixel += at_once * step) {
      typename Kernel::template Values<N> values[at_once];
      for (int u = 0; u < at_once; ++u) {
        if (pixel + u * step < end) values[u] = kernel.template read<N>(from, c);
        from.advance(kernel.rows, step);
      }
      for (int u = 0; u < at_once; ++u) {
        if (pixel + u * step < end) kernel.template write<N>(to, c, values[u], constants);
        to.advance(kernel.rows, step);
      }
    }
  }
};

/// For each pixel and each pack of N channels from c on: kernel.write<N>(place, c, kernel.read<N>(place, c), k), with
/// k[j] = kernel.constants(c + j). A kernel also has `rows`, the number of `tensors` that it reads, and the types
/// Element, Constants and Values<N>.
template <int N, class Exec, class Kernel>
void for_each_pixel_of_channels(const Exec& exec, const char* label, const Kernel& kernel) {
  constexpr Index threads_side_by_side = 256, enough_threads = 1 << 18, most_pixels_of_thread = 16;
  const Index packs = kernel.rows.channels / N, pixels = kernel.rows.rows() * kernel.rows.width;
  const Index step = packs < threads_side_by_side ? threads_side_by_side / packs : 1;
  const Index each = Kokkos::clamp<Index>(pixels * packs / enough_threads, 1, most_pixels_of_thread);
  const Index chunk = step * each, chunks = (pixels + chunk - 1) / chunk;
  Kokkos::parallel_for(label, Range<Exec>(exec, 0, chunks * step * packs),
                       EachPixelOfChannels<Kernel, N>{kernel, pixels, step, each});
}

/// The threads of a team: lines of pixels × lanes of packs. Threads left over do nothing.
struct TeamTable {
  Index packs, blocks, lanes, lines;

  TeamTable(Index threads, Index packs_of_tensor, Index most) : packs(packs_of_tensor) {
    blocks = (packs + most - 1) / most;
    lanes = (packs + blocks - 1) / blocks;
    lines = threads / lanes;
  }
  /// The place of a thread of a team that has the given block of packs. False: nothing to do.
  KOKKOS_FUNCTION bool place(Index thread, Index block, Index& line, Index& pack) const {
    line = thread / lanes;
    pack = block * lanes + thread % lanes;
    return line < lines && pack < packs;
  }
};

/// A team adds a block of packs over one share of the pixels: each thread its lines, then some threads the lines.
template <class Exec, class Kernel, int N>
struct ChannelSumsOfShare {
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::IndexType<Index>>;
  static constexpr int sums = Kernel::sums, at_once = pixels_at_once<Kernel, N>(64);

  Kernel kernel;
  TeamTable table;
  Index threads;

  KOKKOS_FUNCTION void operator()(const typename Policy::member_type& team) const {
    auto* const scratch = static_cast<double*>(team.team_shmem().get_shmem(scratch_bytes(threads)));
    add_lines(team.league_rank(), team.team_rank(), scratch);
    team.team_barrier();
    add_up(team.league_rank(), team.team_rank(), scratch);
  }
  KOKKOS_FUNCTION static std::ptrdiff_t scratch_bytes(Index threads) {
    return static_cast<std::ptrdiff_t>(sizeof(double)) * sums * N * threads;
  }

  /// The sums of a thread, to `scratch`.
  KOKKOS_FUNCTION void add_lines(Index team, Index thread, double* scratch) const {
    const Index share = team / table.blocks, width = kernel.rows.width;
    const Index begin = kernel.shares.begin(share) * width, end = kernel.shares.end(share) * width;
    double sum[sums][N] = {};
    Index line = 0, pack = 0;
    if (table.place(thread, team % table.blocks, line, pack) && begin + line < end) {
      const Index c = pack * N;
      typename Kernel::Constants constants[N];
      for (int j = 0; j < N; ++j) constants[j] = kernel.constants(c + j);
      PixelPlace place(kernel.rows, begin + line);
      for (Index pixel = begin + line; pixel < end; pixel += at_once * table.lines) {
        typename Kernel::template Values<N> values[at_once];
        for (int u = 0; u < at_once; ++u) {
          if (pixel + u * table.lines < end) values[u] = kernel.template read<N>(place, c);
          place.advance(kernel.rows, table.lines);
        }
        for (int u = 0; u < at_once; ++u)
          if (pixel + u * table.lines < end) kernel.template add<N>(values[u], constants, sum);
      }
    }
    for (int s = 0; s < sums; ++s)
      for (int j = 0; j < N; ++j) scratch[(s * N + j) * threads + thread] = sum[s][j];
  }

  /// A thread adds the lines of some channels.
  KOKKOS_FUNCTION void add_up(Index team, Index thread, const double* scratch) const {
    const Index share = team / table.blocks, first = team % table.blocks * table.lanes;
    for (Index i = thread; i < sums * N * table.lanes; i += threads) {
      const Index lane = i % table.lanes, value = i / table.lanes;
      if (first + lane >= table.packs) continue;
      double sum = 0;
      for (Index line = 0; line < table.lines; ++line) sum += scratch[value * threads + line * table.lanes + lane];
      kernel.store(share, value / N, (first + lane) * N + value % N, sum);
    }
  }
};

/// The threads of a team that sums channels. Its scratch memory is 16 KiB at most.
inline constexpr Index threads_of_sums = 256;

/// For each channel c of each share of kernel.shares: kernel.store(share, s, c, sum) for each of Kernel::sums sums over
/// the pixels of the share. kernel.add<N>(values, k, sum) adds the values of N channels to sum[s][j]. A team has at
/// most Kernel::most_lanes packs side by side.
template <int N, class Exec, class Kernel>
void sum_channels_of_shares(const Exec& exec, const char* label, const Kernel& kernel) {
  using Sums = ChannelSumsOfShare<Exec, Kernel, N>;
  if (kernel.shares.total() == 0 || kernel.rows.channels == 0) return;
  const TeamTable table(threads_of_sums, kernel.rows.channels / N, Kernel::most_lanes);
  typename Sums::Policy policy(exec, static_cast<int>(kernel.shares.total() * table.blocks),
                               static_cast<int>(threads_of_sums));
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Sums::scratch_bytes(threads_of_sums))));
  // As in Range: the functor reaches the device as arguments.
  Kokkos::parallel_for(
      label,
      Kokkos::Experimental::require(with_scratch(policy), Kokkos::Experimental::WorkItemProperty::HintLightWeight),
      Sums{kernel, table, threads_of_sums});
}

/// The channels of a thread. Constants and sums of more would take so many registers that too few threads run at once.
template <class T>
inline constexpr int channels_of_thread = std::min(4, most_in_pack<T>);

/// Calls run with the number of channels of a thread: several where kernel.has_packs<N>() is true, otherwise 1.
template <class Kernel, class Run>
void with_packs(const Kernel& kernel, const Run& run) {
  constexpr int most = channels_of_thread<typename Kernel::Element>;
  if (kernel.template has_packs<most>())
    run(std::integral_constant<int, most>());
  else
    run(std::integral_constant<int, 1>());
}
template <class Exec, class Kernel>
void for_each_pixel_of_channels(const Exec& exec, const char* label, const Kernel& kernel) {
  with_packs(kernel, [&](auto n) { for_each_pixel_of_channels<n()>(exec, label, kernel); });
}
template <class Exec, class Kernel>
void sum_channels_of_shares(const Exec& exec, const char* label, const Kernel& kernel) {
  with_packs(kernel, [&](auto n) { sum_channels_of_shares<n()>(exec, label, kernel); });
}

}  // namespace aloni::nn::local::detail
