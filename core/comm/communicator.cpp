#include <aloni/core/comm/communicator.hpp>

#include <aloni/core/comm/detail/collectives.hpp>
#include <aloni/core/comm/detail/state.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace aloni::comm {

namespace {

std::string one_line_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

// What every communicator made from another one gets from it.
Communicator child_of(const Communicator::State& parent, MPI_Comm mpi) {
  check_mpi(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  auto child = std::make_shared<Communicator::State>(mpi, parent.board);
  child->messages.set_max_message_bytes(parent.messages.max_message_bytes());
  child->collectives.set_max_message_bytes(parent.messages.max_message_bytes());
  return Communicator(std::move(child));
}

void check_peer_and_tag(const char* operation, int peer, int size, int tag) {
  if (peer < 0 || peer >= size) {
    throw InvalidArgument(operation, "peer", std::to_string(peer), "a rank from 0 to " + std::to_string(size - 1));
  }
  if (tag < 0 || tag > Communicator::max_tag) {
    throw InvalidArgument(operation, "tag", std::to_string(tag), "0 to " + std::to_string(Communicator::max_tag));
  }
}

}  // namespace

Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size; }

// MPI's own calls that make a communicator block, and nothing can interrupt them. The ranks meet before, in a wait that
// poison does interrupt; after that all of them are on their way into the call.

Communicator Communicator::split(int color, int key) const {
  if (color < 0) throw InvalidArgument("aloni::comm::Communicator::split", "color", std::to_string(color), "0 or more");
  barrier();
  return state_->poisoning([&] {
    MPI_Comm child = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(state_->mpi, color, key, &child), "MPI_Comm_split");
    return child_of(*state_, child);
  });
}

Communicator Communicator::node() const {
  barrier();
  return state_->poisoning([&] {
    MPI_Comm child = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(state_->mpi, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &child),
              "MPI_Comm_split_type");
    return child_of(*state_, child);
  });
}

Communicator Communicator::subgroup(const std::vector<int>& members) const {
  const auto wrong = [&](const std::string& expectation) {
    std::string list;
    for (const int member : members) list += (list.empty() ? "" : ",") + std::to_string(member);
    throw InvalidArgument("aloni::comm::Communicator::subgroup", "members", "{" + list + "}", expectation);
  };
  if (std::ranges::adjacent_find(members, std::ranges::greater_equal{}) != members.end()) wrong("an ascending list");
  if (members.empty() || members.front() < 0 || members.back() >= size()) {
    wrong("ranks from 0 to " + std::to_string(size() - 1));
  }
  if (!std::ranges::binary_search(members, rank()))
    wrong("the calling rank, " + std::to_string(rank()) + ", among them");
  detail::barrier(detail::Group(*state_, members));
  return state_->poisoning([&] {
    MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm child = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(state_->mpi, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &group), "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(state_->mpi, group, max_tag + 3, &child), "MPI_Comm_create_group");
    check_mpi(MPI_Group_free(&group), "MPI_Group_free");
    check_mpi(MPI_Group_free(&all), "MPI_Group_free");
    return child_of(*state_, child);
  });
}

Request Communicator::send(std::span<const std::byte> data, int peer, int tag) const {
  constexpr const char* operation = "aloni::comm::Communicator::send";
  check_peer_and_tag(operation, peer, size(), tag);
  state_->check_poison(operation, false);
  if (peer == rank()) return state_->self.send(data.data(), data.size(), peer, tag);
  return state_->poisoning([&] { return state_->messages.send(data.data(), data.size(), peer, tag); });
}

Request Communicator::receive(std::span<std::byte> data, int peer, int tag) const {
  constexpr const char* operation = "aloni::comm::Communicator::receive";
  check_peer_and_tag(operation, peer, size(), tag);
  state_->check_poison(operation, false);
  if (peer == rank()) return state_->self.receive(data.data(), data.size(), peer, tag);
  return state_->poisoning([&] { return state_->messages.receive(data.data(), data.size(), peer, tag); });
}

bool Communicator::test(Request& request) const { return state_->test(request, "aloni::comm::Communicator::test"); }

void Communicator::wait(std::span<Request> requests) const {
  state_->wait(requests, "aloni::comm::Communicator::wait");
}

std::size_t Communicator::max_message_bytes() const { return state_->messages.max_message_bytes(); }

void Communicator::set_max_message_bytes(std::size_t bytes) {
  if (bytes < 1 || bytes > INT_MAX) {
    throw InvalidArgument("aloni::comm::Communicator::set_max_message_bytes", "bytes", std::to_string(bytes),
                          "1 to " + std::to_string(INT_MAX));
  }
  state_->messages.set_max_message_bytes(bytes);
  state_->collectives.set_max_message_bytes(bytes);
}

std::vector<std::pair<std::string, TrafficCounters>> Communicator::traffic() const {
  return {{state_->self.name(), state_->self.counters()},
          {state_->messages.name(), state_->messages.counters()},
          {state_->collectives.name(), state_->collectives.counters()}};
}

template <class T>
void Communicator::all_reduce(std::span<T> values, Reduction op) const {
  detail::all_reduce(detail::Group(*state_), values, op);
}

template void Communicator::all_reduce(std::span<float>, Reduction) const;
template void Communicator::all_reduce(std::span<double>, Reduction) const;
template void Communicator::all_reduce(std::span<std::int32_t>, Reduction) const;
template void Communicator::all_reduce(std::span<std::int64_t>, Reduction) const;
template void Communicator::all_reduce(std::span<std::uint64_t>, Reduction) const;

void Communicator::broadcast(std::span<std::byte> data, int root) const {
  if (root < 0 || root >= size()) {
    throw InvalidArgument("aloni::comm::Communicator::broadcast", "root", std::to_string(root),
                          "a rank from 0 to " + std::to_string(size() - 1));
  }
  detail::broadcast(detail::Group(*state_), data, root);
}

void Communicator::broadcast(std::string& text, int root) const {
  std::uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  text.resize(length);
  broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), root);
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size()));
  detail::all_gather(detail::Group(*state_), value, values);
  return values;
}

void Communicator::barrier() const { detail::barrier(detail::Group(*state_)); }

void Communicator::poison(std::string_view message) const noexcept { state_->board->poison(message); }

void Communicator::check_poison() const { state_->check_poison("aloni::comm::Communicator::check_poison", true); }

void Communicator::agree(std::string_view operation, std::exception_ptr local_error) const {
  int failed = 0;
  std::string message;
  try {
    failed = static_cast<int>(all_reduce(std::int64_t{local_error ? rank() : size()}, Reduction::min));
    if (failed == size()) return;
    if (failed == rank()) message = one_line_of(local_error);
    broadcast(message, failed);
  } catch (const Error&) {
    if (local_error) std::rethrow_exception(local_error);  // says more than that others have failed too
    throw;
  }
  if (local_error) std::rethrow_exception(local_error);
  throw PeerFailed(std::string(operation), failed, message, state_->root_ranks[static_cast<std::size_t>(failed)]);
}

}  // namespace aloni::comm
