#pragma once
// How the ranks of a family of communicators reach each other, and when they give up. Pure.
//
//   auto comm = from_mpi(MPI_COMM_WORLD, {.progress_thread = true, .stuck_after = std::chrono::minutes(5)});
#include <aloni/core/comm/faults.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace aloni::comm {

/// The transport between ranks that don't share memory.
enum class MessageTransport : std::uint8_t { mpi, ucx };

/// Which transports a family may use. Equal on all ranks.
struct TransportOptions {
  /// Between ranks of one node that can reach each other's memory.
  bool shared_memory = true;
  /// Between all other ranks. ucx needs a build with aloni_ENABLE_UCX.
  MessageTransport messages = MessageTransport::mpi;
  /// A thread of each rank makes progress while operations are pending. It needs a core of its own. Worth it where
  /// communication should hide behind computation that doesn't call the library. Needs MPI_THREAD_MULTIPLE if any two
  /// ranks talk through MPI; Unsupported otherwise.
  bool progress_thread = false;
  /// Each payload carries a CRC32C. A wrong one is a CommunicationError at the receiver.
  bool checksums = false;
  /// Largest fragment of an MPI message between nodes, in bytes. 0: 60 KiB where the machine has no device for remote
  /// direct memory access, otherwise whole messages.
  /// MPI sends small fragments at once. For longer ones it first asks whether the receiver is ready. Over TCP the
  /// answer waits behind all data of the other direction: an exchange took up to 1.6 times as long as its bytes.
  std::size_t mpi_fragment_bytes = 0;
  /// Above 0: each group of this many ranks counts as a node of its own, to try several nodes on one machine.
  /// 0: nodes are machines.
  int ranks_per_node = 0;
  /// Limit of time for an operation for which nothing arrives. It applies if a rank is stopped or sleeps outside of all
  /// operations, or if all ranks wait. Then every rank of the family throws PeerFailed, which names the rank to blame
  /// and its state. 0: no limit; longest_wait is no limit then either. Also the limit of each step of from_mpi().
  std::chrono::milliseconds stuck_after{30'000};
  /// The limit while the rank to blame uses the processor or waits for a disk. Also the limit while its state is
  /// unknown: it is alone on its node and does not answer. After stuck_after, and then once a minute, a notice says so
  /// (core/notice.hpp).
  std::chrono::milliseconds longest_wait{600'000};
  /// Faults of all messages between ranks, to try how an application reacts to them. Each rank draws from a seed of its
  /// own.
  /// Delays change no result. Lost, truncated or, with checksums, corrupted messages end in an exception on all ranks
  /// that wait for them. Copies within shared memory meet no faults.
  Faults faults{};
};

}  // namespace aloni::comm
