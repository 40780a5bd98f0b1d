#pragma once
// Transport over MPI, between any ranks. An envelope has the header and a payload of up to 4 KiB; it arrives in a ring
// of persistent receives. A larger payload follows as a separate message. The envelope names its tag, and the payload
// is received directly into its destination.
#include <aloni/core/comm/transport.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace aloni::comm::detail {

class MpiTransport final : public Transport {
 public:
  /// `comm`: owned by the caller, with MPI_ERRORS_RETURN, used by nothing else; it must outlive the transport.
  /// `largest`: largest fragment to each rank, in bytes; at most 1 GiB, which is the default.
  /// `device_memory`: whether MPI takes device memory (engine/trial_message.hpp).
  explicit MpiTransport(MPI_Comm comm, std::vector<std::size_t> largest = {}, bool device_memory = false);
  /// Number of envelopes sent to each rank, and received from all ranks.
  const std::vector<int>& envelopes_sent() const { return envelopes_sent_; }
  int envelopes_received() const { return envelopes_received_; }
  ~MpiTransport() override;

  std::string name() const override { return "mpi"; }
  std::size_t largest_fragment(int peer, const void*, std::size_t) const override {
    return largest_.empty() ? largest_message_bytes
                            : std::min(largest_[static_cast<std::size_t>(peer)], largest_message_bytes);
  }
  Sent send(int peer, const Header& header, const void* data, std::uint32_t ticket) override;
  bool carries_device_memory() const override { return device_memory_; }
  bool poll(Sink& sink) override;
  bool flushed() override;
  void release(const Fragment&) override {}
  void fetch(const Fragment& fragment, void* to, std::uint32_t ticket) override;
  void abandon() noexcept override;

 private:
  static constexpr std::size_t largest_message_bytes = std::size_t{1} << 30;  // MPI counts in int

  struct Bulk {
    std::uint32_t ticket = 0;
    bool is_receive = false;
    std::size_t bytes = 0;
    int peer = -1;
  };

  bool poll_envelopes(Sink& sink);
  bool poll_bulk(Sink& sink);
  std::byte* incoming(std::size_t i);
  std::byte* outgoing(std::size_t i);

  MPI_Comm comm_;
  std::vector<std::size_t> largest_;
  bool device_memory_;
  int tags_ = 0;  // payload messages use the tags 1 … tags_
  std::uint32_t bulk_messages_ = 0;

  std::vector<std::byte> buffers_;
  std::vector<MPI_Request> receives_, sends_;  // envelopes
  std::vector<int> envelopes_sent_;
  int envelopes_received_ = 0;
  bool receiving_ = false;  // whether MPI may still write to buffers_ after abandon()
  std::size_t next_receive_ = 0, next_send_ = 0, oldest_send_ = 0;
  std::vector<MPI_Request> bulk_;
  std::vector<Bulk> bulk_info_;
  std::vector<int> completed_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace aloni::comm::detail
