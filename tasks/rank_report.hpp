#pragma once
// What one rank did in a run of tasks across ranks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_requests.hpp>

namespace aloni::tasks {

struct RankReport {
  RunReport run;               ///< tasks of this rank
  TileRequests::Counts tiles;  ///< requests and payloads that it sent, and copies that it got
};

}  // namespace aloni::tasks
