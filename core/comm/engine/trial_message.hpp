#pragma once
// A trial message in device memory. An MPI may report that it takes device memory, and then send wrong bytes or fail,
// for example without the right environment. Only messages that arrived prove it.
#include <aloni/core/comm/device/device_memory.hpp>
#include <aloni/core/comm/engine/start_up.hpp>

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace aloni::comm::detail {

/// Memory for a message of `bytes` bytes of a rank; null if there is none.
using MakeTrialMemory = std::function<std::unique_ptr<TrialMemory>(int rank, std::size_t bytes)>;

/// Sends a short and a long message from each rank to the next one. Returns true on all ranks if all arrived unchanged.
/// `reported`: whether this rank's MPI says that it takes such memory. Nothing is sent unless all ranks' do.
/// `comm`: errors return. Nothing else uses it meanwhile. Collective. Throws as StartUp does.
bool trial_messages_arrive(MPI_Comm comm, StartUp& start_up, bool reported, const MakeTrialMemory& make);

}  // namespace aloni::comm::detail
