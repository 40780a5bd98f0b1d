#pragma once
// Messages between devices by a device library (NCCL): all messages of an exchange in one group, on the communication
// stream. No host waits for kernels. Halo transfers use them between nodes (halo/detail/message_group.hpp).
//
//   GroupedMessages groups(comm);                      // collective; false if the library cannot serve these ranks
//   const std::uint64_t turn = groups.take_turn();     // on every rank of the communicator
//   groups.start(sends, receives, stream);             // after the kernels of `stream` so far
//   …                                                  // kernels that neither read nor write the messages' memory
//   groups.finish(stream);                             // later kernels of `stream` see the values
//
// Order. The library runs the operations of a communicator in the order in which this rank submits them, one after the
// other. An operation is complete only when the other ranks have submitted theirs. Messages have no tags: the k-th
// message to a rank meets the k-th that it receives. So two ranks that submit in different orders wait for each other
// for ever, or get each other's values. Hence two rules:
//   1. All ranks of the communicator start operations of the library in the same order: groups and all-reduces of
//      device memory (view_all_reduce.hpp).
//   2. Every rank counts each operation, also an operation in which it has no message: take_turn(). Ranks that exchange
//      messages compare their numbers through the host, and an unequal pair is an error of both.
//
// Claim: if all compared numbers are equal, no stream waits for ever, and each message meets its own receive.
// Proof. Each rank submits in ascending order of its numbers. A submitted group waits for two things: operations of its
// rank with lower numbers, and groups with the same number on the ranks of its messages. Of all groups that wait on any
// rank, take one with the lowest number n. No operation of its rank before it waits. The ranks of its messages have, or
// will submit, a group with number n. Nothing there with a lower number waits, so these groups run together with it,
// and their messages meet. So it does not wait: a contradiction. All-reduces are groups with messages to all ranks.
// Messages meet their own receives: between two ranks, both have messages at the same numbers (the plans agree), and
// submit them in ascending order; so the k-th message is the k-th receive.
// Comparing each pair's own count of groups would not be enough. Three ranks with three groups, one for each pair, can
// wait in a circle, although each pair has only one group.
//
// Hosts compare while the library works, so that no host waits before it submits. If ranks have started in different
// orders, one of them finds it before kernels use the values, and poisons the family. This ends the operations of the
// library (DeviceCollectives::end_all), so that no stream waits for ever.
//
// Alternatives. A communicator of the library for each transfer would need no common order of transfers. But kernels of
// two communicators occupy the device while they wait for their peers. In different orders on two devices they can lock
// each other out (NCCL user guide, "Using multiple NCCL communicators concurrently"). Each also takes memory. A rank
// that collects which operations are ready, and tells all ranks the next one, allows any order: the coordinator of
// Horovod. But every exchange then waits for two messages through that rank. Transfers in any order keep the other ways
// instead: device-aware MPI and host memory.
//
// Several communicators of one process: rule 1 holds for the operations of all of them together. The numbers show a
// wrong order within one communicator only.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/device/device_collectives.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace aloni::comm {

class GroupedMessages {
 public:
  /// There are none.
  GroupedMessages() = default;
  /// Collective. Throws PeerFailed, CommunicationError.
  explicit GroupedMessages(const Communicator& comm);

  /// Whether a library serves these ranks: the build has one, and each rank has a device of its own. Equal on all
  /// ranks.
  explicit operator bool() const { return library_ != nullptr; }
  // All functions below: @pre there is a library

  /// For people: its name.
  std::string library() const { return library_->library(); }
  /// The number of this rank's next operation. Call it on every rank of the communicator, for each group.
  std::uint64_t take_turn() const { return library_->take_turn(); }
  /// Starts a group, after all work submitted to `stream` so far. Asynchronous: until finish(), the messages' memory
  /// belongs to the group. Collective among the ranks that exchange messages. Throws PeerFailed, CommunicationError.
  /// @pre the previous group of this object is finished
  void start(std::span<const detail::DeviceMessage> sends, std::span<const detail::DeviceMessage> receives,
             void* stream) const;
  /// Later work of `stream` sees the received messages, and may overwrite the sent ones. The host does not wait. Throws
  /// like start().
  void finish(void* stream) const;

 private:
  std::shared_ptr<Communicator::State> state_;
  std::shared_ptr<detail::DeviceCollectives> library_;
  /// Of this object only: an event that others record too would make streams wait for their groups.
  std::unique_ptr<detail::StreamEvent> ready_, arrived_;
};

}  // namespace aloni::comm
