#include <aloni/core/comm/detail/mpi_transport.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace aloni::comm::detail {

namespace {

std::size_t part_bytes(std::size_t bytes, std::size_t limit, std::size_t part) {
  return std::min(limit, bytes - part * limit);
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, std::string name, std::vector<int> root_ranks)
    : comm_(comm), name_(std::move(name)), root_ranks_(std::move(root_ranks)) {}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) cancel_receives();
}

std::uint32_t MpiTransport::add(std::size_t bytes, int peer, int tag, bool is_receive) {
  if (free_.empty()) {
    slots_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    free_.reserve(slots_.size());  // so that giving a slot back never allocates
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.parts.assign(bytes / max_message_bytes_ + 1, MPI_REQUEST_NULL);
  slot.next = 0;
  slot.bytes = bytes;
  slot.limit = max_message_bytes_;
  slot.peer = peer;
  slot.tag = tag;
  slot.is_receive = is_receive;
  return index;
}

void MpiTransport::release(std::uint32_t index) {
  slots_[index].parts.clear();
  free_.push_back(index);
}

Request MpiTransport::send(const void* data, std::size_t bytes, int peer, int tag) {
  const std::uint32_t index = add(bytes, peer, tag, false);
  Slot& slot = slots_[index];
  for (std::size_t part = 0; part < slot.parts.size(); ++part) {
    check_mpi(
        MPI_Isend(static_cast<const std::byte*>(data) + part * slot.limit,
                  static_cast<int>(part_bytes(bytes, slot.limit, part)), MPI_BYTE, peer, tag, comm_, &slot.parts[part]),
        "MPI_Isend");
  }
  ++counters_.messages_sent;
  counters_.bytes_sent += bytes;
  return {this, index};
}

Request MpiTransport::receive(void* data, std::size_t bytes, int peer, int tag) {
  const std::uint32_t index = add(bytes, peer, tag, true);
  Slot& slot = slots_[index];
  for (std::size_t part = 0; part < slot.parts.size(); ++part) {
    check_mpi(
        MPI_Irecv(static_cast<std::byte*>(data) + part * slot.limit,
                  static_cast<int>(part_bytes(bytes, slot.limit, part)), MPI_BYTE, peer, tag, comm_, &slot.parts[part]),
        "MPI_Irecv");
  }
  ++counters_.messages_received;
  counters_.bytes_received += bytes;
  return {this, index};
}

bool MpiTransport::test(Request& request) {
  Slot& slot = slots_[request.slot];
  for (; slot.next < slot.parts.size(); ++slot.next) {
    int done = 0;
    MPI_Status status;
    const std::size_t expected = part_bytes(slot.bytes, slot.limit, slot.next);
    const int code = MPI_Test(&slot.parts[slot.next], &done, &status);
    if (code != MPI_SUCCESS) {
      request.transport = nullptr;
      fail(request.slot, code, expected, -1);
    }
    if (!done) return false;
    if (slot.is_receive) {
      int count = 0;
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
      if (static_cast<std::size_t>(count) != expected) {
        request.transport = nullptr;
        fail(request.slot, MPI_SUCCESS, expected, count);
      }
    }
  }
  release(request.slot);
  request.transport = nullptr;
  return true;
}

void MpiTransport::fail(std::uint32_t index, int code, std::size_t expected, long long received) {
  Slot& slot = slots_[index];
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  // The remaining parts of a receive still point into the caller's buffer.
  for (MPI_Request& part : slot.parts) {
    if (part == MPI_REQUEST_NULL) continue;
    if (slot.is_receive) MPI_Cancel(&part);
    MPI_Request_free(&part);
  }
  std::string who = std::string("message ") + (slot.is_receive ? "from" : "to") + " rank " + std::to_string(slot.peer);
  const int root_rank = root_ranks_.empty() ? slot.peer : root_ranks_[static_cast<std::size_t>(slot.peer)];
  if (root_rank != slot.peer) who += " (rank " + std::to_string(root_rank) + " of the root communicator)";
  who += ", tag " + std::to_string(slot.tag);
  if (slot.parts.size() > 1)
    who += ", part " + std::to_string(slot.next + 1) + " of " + std::to_string(slot.parts.size());
  const bool is_receive = slot.is_receive;
  release(index);
  if (code != MPI_SUCCESS && error_class != MPI_ERR_TRUNCATE) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw CommunicationError(is_receive ? "aloni::comm::receive" : "aloni::comm::send", who,
                             std::string(text, static_cast<std::size_t>(length)), "MPI_SUCCESS");
  }
  throw CommunicationError(
      "aloni::comm::receive", who,
      received < 0 ? "more than " + std::to_string(expected) + " bytes" : std::to_string(received) + " bytes",
      std::to_string(expected) + " bytes");
}

void MpiTransport::cancel_receives() noexcept {
  bool any = false;
  for (Slot& slot : slots_) {
    if (!slot.is_receive) continue;
    for (MPI_Request& part : slot.parts) {
      if (part == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&part);
      any = true;
    }
  }
  if (!any) return;
  // A cancelled receive completes at once unless its message is already on the way; then it completes when the rest has
  // come, which needs a sender that is still alive.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  bool late = false;
  for (Slot& slot : slots_) {
    if (!slot.is_receive) continue;
    for (MPI_Request& part : slot.parts) {
      for (int done = part == MPI_REQUEST_NULL; !done && !late;) {
        if (MPI_Test(&part, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
        late = std::chrono::steady_clock::now() > deadline;
      }
    }
  }
}

}  // namespace aloni::comm::detail
