#pragma once
// The communicator of a test. ALONI_TEST_TRANSPORT names its transport; aloni_add_test sets this variable, which the
// library itself does not read:
//   shared         shared memory; the default
//   thread         shared memory, and a thread makes progress
//   mpi, ucx       messages of that library only
//   nodes          nodes of two ranks
//   faulty         MPI with delayed and reordered messages
//   faulty-shared  shared memory with delayed and reordered messages
#include <aloni/core/comm/mpi.hpp>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace aloni::test {

inline comm::TransportOptions transport_options() {
  const char* const variable = std::getenv("ALONI_TEST_TRANSPORT");
  const std::string name = variable ? variable : "shared";
  if (name == "shared") return {};
  if (name == "thread") return {.progress_thread = true};
  if (name == "mpi") return {.shared_memory = false};
  if (name == "ucx") return {.shared_memory = false, .messages = comm::MessageTransport::ucx};
  if (name == "nodes") return {.ranks_per_node = 2};
  if (name.starts_with("faulty")) {
    static std::uint64_t seed = 0;  // different faults for each communicator
    return {.shared_memory = name == "faulty-shared", .faults = {.seed = ++seed, .delay = 0.3, .no_room = 0.2}};
  }
  throw std::invalid_argument("ALONI_TEST_TRANSPORT=" + name);
}

/// Collective.
inline comm::Communicator make_communicator() { return comm::from_mpi(MPI_COMM_WORLD, transport_options()); }

}  // namespace aloni::test
