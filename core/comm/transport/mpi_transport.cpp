#include <aloni/core/comm/transport/mpi_transport.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace aloni::comm::detail {

namespace {

enum Path : std::uint8_t { in_envelope, follows };

constexpr int envelope_tag = 0;
// The eager limits of MPI libraries are 4 KiB or more. A copy of this size costs less than a second message.
constexpr std::size_t payload_bytes = 4096 - sizeof(Header);
constexpr std::size_t envelope_bytes = sizeof(Header) + payload_bytes;
constexpr std::size_t num_receives = 16, num_sends = 32;

[[noreturn]] void fail_mpi(int code, const std::string& what) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError("aloni::comm::MpiTransport", what, std::string(text, static_cast<std::size_t>(length)),
                           "MPI_SUCCESS");
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, std::vector<std::size_t> largest, bool device_memory)
    : comm_(comm),
      largest_(std::move(largest)),
      device_memory_(device_memory),
      buffers_((num_receives + num_sends) * envelope_bytes),
      receives_(num_receives, MPI_REQUEST_NULL),
      sends_(num_sends, MPI_REQUEST_NULL) {
  void* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  int size = 0;
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  envelopes_sent_.resize(static_cast<std::size_t>(size));
  tags_ = found ? *static_cast<int*>(value) : 32767;  // the minimum that the standard guarantees
  for (std::size_t i = 0; i < num_receives; ++i) {
    check_mpi(MPI_Recv_init(incoming(i), envelope_bytes, MPI_BYTE, MPI_ANY_SOURCE, envelope_tag, comm_, &receives_[i]),
              "MPI_Recv_init");
    check_mpi(MPI_Start(&receives_[i]), "MPI_Start");
  }
}

MpiTransport::~MpiTransport() {
  abandon();
  int finalized = 0, sent = 1;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &sent, MPI_STATUSES_IGNORE);
  if (sent && !receiving_) return;
  // MPI may still read an envelope that was not received, or write one that was on its way when its receive was
  // cancelled.
  new std::vector<std::byte>(std::move(buffers_));  // NOLINT(bugprone-unused-raii): leaked by design
}

std::byte* MpiTransport::incoming(std::size_t i) { return buffers_.data() + i * envelope_bytes; }
std::byte* MpiTransport::outgoing(std::size_t i) { return buffers_.data() + (num_receives + i) * envelope_bytes; }

Transport::Sent MpiTransport::send(int peer, const Header& header, const void* data, std::uint32_t ticket) {
  // Slots are used in turn: the next slot is the one with the oldest send.
  MPI_Request& slot = sends_[next_send_];
  const std::size_t after = (next_send_ + 1) % num_sends;
  if (after == oldest_send_) {  // one slot stays empty, to distinguish a full ring from an empty one
    int done = 0;
    check_mpi(MPI_Test(&sends_[oldest_send_], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) return Sent::no_room;
    oldest_send_ = (oldest_send_ + 1) % num_sends;
  }
  std::byte* const envelope = outgoing(next_send_);
  Header h = header;
  const bool inside = header.bytes == 0 || (header.bytes <= payload_bytes && header.path != Header::device_path);
  h.path = inside ? in_envelope : follows;
  std::memcpy(envelope, &h, sizeof h);
  int bytes = sizeof h, tag = 0;
  if (inside) {
    if (header.bytes > 0) std::memcpy(envelope + sizeof h, data, header.bytes);
    bytes += static_cast<int>(header.bytes);
  } else {
    tag = 1 + static_cast<int>(bulk_messages_++ % static_cast<std::uint32_t>(tags_));
    std::memcpy(envelope + sizeof h, &tag, sizeof tag);
    bytes += static_cast<int>(sizeof tag);
  }
  check_mpi(MPI_Isend(envelope, bytes, MPI_BYTE, peer, envelope_tag, comm_, &slot), "MPI_Isend");
  next_send_ = after;
  ++envelopes_sent_[static_cast<std::size_t>(peer)];
  if (inside) return Sent::copied;
  bulk_.push_back(MPI_REQUEST_NULL);
  bulk_info_.push_back({.ticket = ticket, .is_receive = false, .bytes = header.bytes, .peer = peer});
  check_mpi(MPI_Isend(data, static_cast<int>(header.bytes), MPI_BYTE, peer, tag, comm_, &bulk_.back()), "MPI_Isend");
  return Sent::pending;
}

void MpiTransport::fetch(const Fragment& fragment, void* to, std::uint32_t ticket) {
  bulk_.push_back(MPI_REQUEST_NULL);
  bulk_info_.push_back({.ticket = ticket, .is_receive = true, .bytes = fragment.header.bytes, .peer = fragment.peer});
  check_mpi(MPI_Irecv(to, static_cast<int>(fragment.header.bytes), MPI_BYTE, fragment.peer,
                      static_cast<int>(fragment.token), comm_, &bulk_.back()),
            "MPI_Irecv");
}

bool MpiTransport::flushed() {
  for (; oldest_send_ != next_send_; oldest_send_ = (oldest_send_ + 1) % num_sends) {
    int done = 0;
    check_mpi(MPI_Test(&sends_[oldest_send_], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) return false;
  }
  return true;
}

bool MpiTransport::poll(Sink& sink) {
  const bool envelopes = poll_envelopes(sink);
  return poll_bulk(sink) || envelopes;
}

bool MpiTransport::poll_envelopes(Sink& sink) {
  bool any = false;
  while (true) {
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&receives_[next_receive_], &done, &status);
    if (code != MPI_SUCCESS) fail_mpi(code, "envelope");
    if (!done) return any;
    any = true;
    ++envelopes_received_;
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Fragment fragment{.peer = status.MPI_SOURCE};
    std::memcpy(&fragment.header, incoming(next_receive_), sizeof(Header));
    const std::byte* const payload = incoming(next_receive_) + sizeof(Header);
    if (fragment.header.path == in_envelope) {
      fragment.data = payload;
      if (static_cast<std::size_t>(bytes) != sizeof(Header) + fragment.header.bytes) {
        throw CommunicationError("aloni::comm::MpiTransport", "envelope from rank " + std::to_string(status.MPI_SOURCE),
                                 std::to_string(bytes) + " bytes",
                                 std::to_string(sizeof(Header) + fragment.header.bytes) + " bytes");
      }
    } else {
      int tag = 0;
      std::memcpy(&tag, payload, sizeof tag);
      fragment.token = static_cast<std::uint64_t>(tag);
    }
    sink.arrived(fragment);
    check_mpi(MPI_Start(&receives_[next_receive_]), "MPI_Start");
    next_receive_ = (next_receive_ + 1) % num_receives;
  }
}

bool MpiTransport::poll_bulk(Sink& sink) {
  if (bulk_.empty()) return false;
  completed_.resize(bulk_.size());
  statuses_.resize(bulk_.size());
  int count = 0;
  const int code =
      MPI_Testsome(static_cast<int>(bulk_.size()), bulk_.data(), &count, completed_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) fail_mpi(code, "payload");
  if (count <= 0) return false;
  for (int i = 0; i < count; ++i) {
    const auto which = static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)]);
    const Bulk& bulk = bulk_info_[which];
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    const auto who = [&] {
      return std::string("payload ") + (bulk.is_receive ? "from" : "to") + " rank " + std::to_string(bulk.peer);
    };
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) fail_mpi(status.MPI_ERROR, who());
    if (bulk.is_receive) {
      int bytes = 0;
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      if (static_cast<std::size_t>(bytes) != bulk.bytes) {
        throw CommunicationError("aloni::comm::MpiTransport", who(), std::to_string(bytes) + " bytes",
                                 std::to_string(bulk.bytes) + " bytes");
      }
      sink.fetched(bulk.ticket);
    } else {
      sink.sent(bulk.ticket);
    }
  }
  // Completed requests are null now. The others keep their order.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < bulk_.size(); ++i) {
    if (bulk_[i] == MPI_REQUEST_NULL) continue;
    bulk_[kept] = bulk_[i];
    bulk_info_[kept++] = bulk_info_[i];
  }
  bulk_.resize(kept);
  bulk_info_.resize(kept);
  return true;
}

void MpiTransport::abandon() noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  for (MPI_Request& request : receives_) {
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
  for (std::size_t i = 0; i < bulk_.size(); ++i) {
    if (bulk_info_[i].is_receive && bulk_[i] != MPI_REQUEST_NULL) MPI_Cancel(&bulk_[i]);
  }
  // A cancelled receive completes at once, unless its message is already on the way. Then it completes after the rest
  // of the message, which needs a sender that is still alive.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  const auto finish = [&](MPI_Request& request) {
    for (int done = request == MPI_REQUEST_NULL; !done;) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  };
  for (MPI_Request& request : receives_) {
    if (request == MPI_REQUEST_NULL) continue;
    receiving_ |= !finish(request);
    MPI_Request_free(&request);
  }
  // A send cannot be cancelled. The receiver may be receiving the data already, and their memory is about to be freed.
  for (MPI_Request& request : bulk_) finish(request);
  receives_.clear();
  bulk_.clear();
  bulk_info_.clear();
}

}  // namespace aloni::comm::detail
