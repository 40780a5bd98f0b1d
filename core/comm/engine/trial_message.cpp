#include <aloni/core/comm/engine/trial_message.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace aloni::comm::detail {

namespace {

bool all_agree(StartUp& start_up, bool mine) {
  const std::byte own{mine};
  return std::ranges::all_of(start_up.all_gather(std::span(&own, 1)), [](std::byte b) { return b != std::byte{0}; });
}

}  // namespace

bool trial_messages_arrive(MPI_Comm comm, StartUp& start_up, bool reported, const MakeTrialMemory& make) {
  constexpr std::array<std::size_t, 2> sizes{64, std::size_t{1} << 20};  // sent at once, and after a handshake
  constexpr int tag = 0;
  if (!all_agree(start_up, reported)) return false;
  const int rank = start_up.rank(), size = start_up.size();
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (const std::size_t bytes : sizes) {
    std::unique_ptr<TrialMemory> memory = make(rank, bytes);
    if (!all_agree(start_up, memory != nullptr)) return false;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    const int count = static_cast<int>(bytes);
    const bool begun = MPI_Irecv(memory->received(), count, MPI_BYTE, before, tag, comm, &requests[0]) == MPI_SUCCESS &&
                       MPI_Isend(memory->sent(), count, MPI_BYTE, next, tag, comm, &requests[1]) == MPI_SUCCESS;
    if (!all_agree(start_up, begun)) {  // a rank that could not begin would let others wait for ever
      (void)memory.release();           // MPI may still write to it
      return false;
    }
    for (MPI_Request& request : requests) start_up.wait(request);
    if (!all_agree(start_up, memory->holds_values_of(before))) return false;
  }
  return true;
}

}  // namespace aloni::comm::detail
