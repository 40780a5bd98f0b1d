#pragma once
// Messages through MPI: MPI_Isend, MPI_Irecv, MPI_Test.
//
// A message of B bytes travels in floor(B / M) parts of M = max_message_bytes and one last part that is shorter than M,
// maybe empty. Because the last part is always the first short one, a receiver that expects another size meets a part
// of the wrong length at once, and never takes a left-over part for the beginning of the next message. With the default
// M of 2^30 a second part exists only for messages of 1 GiB and more.
//
// Slots and their lists of parts are reused: after the first use of a pattern nothing is allocated.
#include <aloni/core/comm/transport.hpp>

#include <mpi.h>

#include <string>
#include <vector>

namespace aloni::comm::detail {

class MpiTransport final : public Transport {
 public:
  static constexpr std::size_t default_max_message_bytes = std::size_t{1} << 30;

  /// `comm` belongs to the caller, outlives the transport and returns errors. `root_ranks[r]`: the rank that texts of
  /// errors name beside r (see PeerFailed::root_rank).
  MpiTransport(MPI_Comm comm, std::string name, std::vector<int> root_ranks);
  /// Cancels what is still pending.
  ~MpiTransport() override;

  std::string name() const override { return name_; }
  Request send(const void* data, std::size_t bytes, int peer, int tag) override;
  Request receive(void* data, std::size_t bytes, int peer, int tag) override;
  bool test(Request& request) override;

  std::size_t max_message_bytes() const { return max_message_bytes_; }
  /// For messages posted from now on. @pre 1 ≤ bytes ≤ INT_MAX; the same on both sides of a message
  void set_max_message_bytes(std::size_t bytes) { max_message_bytes_ = bytes; }

  /// Gives the buffers of all pending receives back to their owners; their requests are dead afterwards. Waits, a short
  /// time only, for transfers that have already begun.
  void cancel_receives() noexcept;

 private:
  struct Slot {
    std::vector<MPI_Request> parts;  // empty: the slot is free
    std::size_t next = 0;            // first part that has not completed
    std::size_t bytes = 0, limit = 0;
    int peer = 0, tag = 0;
    bool is_receive = false;
  };

  std::uint32_t add(std::size_t bytes, int peer, int tag, bool is_receive);
  void release(std::uint32_t index);
  [[noreturn]] void fail(std::uint32_t index, int code, std::size_t expected, long long received);

  MPI_Comm comm_;
  std::string name_;
  std::vector<int> root_ranks_;
  std::size_t max_message_bytes_ = default_max_message_bytes;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace aloni::comm::detail
