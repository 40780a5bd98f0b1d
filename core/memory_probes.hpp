#pragma once
// Caches and bandwidths of this host, for models of kernels that memory limits. Plain loops and threads of the standard
// library.
//
//   const std::size_t cache = cache_bytes(2);
//   copy_bandwidth(cache / 2, 1, 0.02);               // of the cache of one core
//   copy_bandwidth(std::size_t{256} << 20, 2, 0.1);   // of main memory, two cores together
#include <cstddef>

namespace aloni {

/// Bytes of a data cache of the first core, as the operating system counts them; level from 1 to 3. 0: not known.
std::size_t cache_bytes(int level);

/// Bytes read and written per second by y = a x + b, with x and y of `bytes` bytes together in each thread. The best of
/// several passes within about `seconds`. The kernels of this library write in the same way: through the caches, so
/// that each line is read before it is written. Those reads do not count.
/// @pre bytes ≥ 1024, threads ≥ 1
double copy_bandwidth(std::size_t bytes, int threads, double seconds);

}  // namespace aloni
