#include <aloni/core/comm/grouped_messages.hpp>

#include <aloni/core/error.hpp>

namespace aloni::comm {

GroupedMessages::GroupedMessages(const Communicator& comm)
    : state_(comm.state_), library_(comm.size() > 1 ? comm.device_collectives() : nullptr) {
  if (!library_) return;
  collectively(comm, "aloni::comm::GroupedMessages", [&] {
    ready_ = library_->make_event();
    arrived_ = library_->make_event();
  });
}

void GroupedMessages::start(std::span<const detail::DeviceMessage> sends,
                            std::span<const detail::DeviceMessage> receives, void* stream) const {
  void* const communication = library_->group_stream();
  ready_->record(stream);
  ready_->await(communication);
  library_->submit_group(Communicator(state_), sends, receives);
  arrived_->record(communication);
}

void GroupedMessages::finish(void* stream) const {
  library_->finish(Communicator(state_));
  arrived_->await(stream);
}

}  // namespace aloni::comm
