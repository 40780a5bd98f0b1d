#pragma once
// The discrete-event walk of collective_costs.hpp: the schedules of all ranks, and the rates at which their steps run.
#include <aloni/core/comm/collective_schedules.hpp>
#include <aloni/model/machine.hpp>

#include <cstdint>
#include <vector>

namespace aloni::model::detail {

struct WalkRates {
  LinkCosts within, between;  ///< messages within and between nodes
  double combine = 0;         ///< seconds of a sum, for each byte added
  double copy = 0;            ///< seconds of a copy within a rank, for each byte
  double shared_copy = 0;     ///< the same from or to the memory of another rank
  bool shared_data = false;
};

class ScheduleWalk {
 public:
  /// Both arguments outlive this object. @pre one schedule for each rank of `description`
  ScheduleWalk(const comm::CollectiveSchedules& schedules, const MachineDescription& description, int element_bytes);

  /// Seconds until the last step of all ranks has ended; all begin at 0. Any number of times.
  double seconds(const WalkRates& rates) const;

 private:
  friend class WalkState;

  /// The schedule of one rank in one part.
  struct Steps {
    const comm::Schedule* schedule = nullptr;
    std::vector<int> waiting = {};          ///< events before each step can run
    std::vector<int> first_dependent = {};  ///< of each step, within `dependents`; one more at the end
    std::vector<int> dependents = {};
    std::vector<int> partner = {};  ///< of a send: the receive of its peer; of a receive: the send
  };
  static std::vector<Steps> steps_of(const std::vector<comm::Schedule>& schedules);
  const Steps& steps(int rank, std::uint32_t part) const {
    return (part + 1 == parts_ ? last_ : whole_)[static_cast<std::size_t>(rank)];
  }

  std::uint32_t parts_, parts_at_once_;
  double unit_;
  std::vector<int> nodes_;  ///< of each rank
  std::vector<Steps> whole_, last_;
};

}  // namespace aloni::model::detail
