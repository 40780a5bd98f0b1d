#pragma once
// StartUp: the collective calls that make a family of communicators, over MPI, before any transport exists. No rank
// waits for ever. A rank that fails tells the others. The error names a rank that has ended, is stopped or does not
// come.
//
//   StartUp start_up(comm, limit);
//   try {
//     … start_up.all_gather(bytes) …              // any number, in one order on all ranks
//     start_up.finish();                          // all ranks have succeeded
//   } catch (const std::exception& e) {
//     start_up.fail(e.what());                    // the others throw PeerFailed from their next call
//     throw;
//   }
#include <aloni/core/comm/liveness/job_processes.hpp>
#include <aloni/core/comm/liveness/watch.hpp>

#include <mpi.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::comm::detail {

class StartUp {
 public:
  /// `limit`: longest wait in one call; 0: none. `longest`: the same while a late rank of this machine uses the
  /// processor or waits for a disk. Not collective.
  StartUp(MPI_Comm comm, std::chrono::milliseconds limit, std::chrono::milliseconds longest = {});
  StartUp(const StartUp&) = delete;
  StartUp& operator=(const StartUp&) = delete;

  /// A duplicate of the communicator that returns errors. The first one carries the calls below. Collective.
  MPI_Comm duplicate();
  int rank() const { return rank_; }
  int size() const { return size_; }

  // All these are collective. They throw PeerFailed with the rank that has failed, ended, is stopped or has not come.

  /// The bytes of all ranks in the order of ranks. Ranks may give different numbers of bytes.
  std::vector<std::byte> all_gather(std::span<const std::byte> mine);
  /// The bytes of `ranks` only, in this order.
  std::vector<std::byte> all_gather(std::span<const std::byte> mine, std::span<const int> ranks);
  /// Waits for all ranks; calls `progress` meanwhile.
  void barrier(const std::function<void()>& progress);
  /// Returns when all ranks have succeeded.
  void finish();
  /// Waits for a request that other ranks complete; calls `progress` meanwhile. Not collective.
  void wait(MPI_Request& request, const std::function<void()>& progress = {});

  /// Tells the other ranks that this one has failed. Waits for them at most five seconds.
  void fail(std::string_view what) noexcept;
  /// From now on waits also look for ended processes of this node.
  void use(const Watch* watch) { watch_ = watch; }

 private:
  void look(std::chrono::steady_clock::duration waited);
  /// One round: `mine` and whether this rank has failed. Returns the bytes by rank.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine, bool failed,
                                               const std::function<void()>& progress = {});
  [[noreturn]] void throw_failed(int rank, const std::string& what);

  MPI_Comm given_, comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::chrono::milliseconds limit_, longest_;
  const Watch* watch_ = nullptr;
  JobProcesses processes_;
  std::vector<int> world_ranks_;  // of the communicator's ranks; -1: not in MPI_COMM_WORLD
  std::vector<JobProcess> seen_;  // processes of the communicator at the first look
  bool over_ = false;             // another rank has failed: it does not wait for this one
  bool idle_ = false;             // at the last look after the limit no other rank worked
};

}  // namespace aloni::comm::detail
