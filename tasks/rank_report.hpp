#pragma once
// What one rank did in a run of tasks across ranks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_requests.hpp>

#include <cstdint>

namespace aloni::tasks {

struct RankReport {
  RunReport run;               ///< tasks of this rank
  TileRequests::Counts tiles;  ///< requests and payloads that it sent, and copies that it got
  /// Those of the copies that it read in the memory of another rank of its node, without a copy.
  std::uint64_t tiles_in_place = 0, bytes_in_place = 0;
};

}  // namespace aloni::tasks
