#include <aloni/core/comm/shared_events.hpp>

#include <aloni/core/comm/device/device_sharing.hpp>
#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/give_way.hpp>

#include <utility>

namespace aloni::comm {

namespace {

constexpr int looks_at_stream_per_poison = 64;

}  // namespace

SharedEvents::SharedEvents(const Communicator& comm) : state_(comm.state_), device_(comm.state_->runtime->device()) {}

std::string SharedEvents::device_name() const { return device_->description(); }

detail::DeviceEvent* SharedEvents::next() const { return device_ ? device_->next_event() : nullptr; }

ExposedEvent SharedEvents::expose(const detail::DeviceEvent* event, int peer) const {
  if (!event) return {};
  const auto& runtime = *state_->runtime;
  const auto root = static_cast<std::size_t>(state_->context->root_of(peer));
  if (runtime.node_of()[root] != runtime.node_of()[static_cast<std::size_t>(runtime.rank())]) return {};
  return {1, event->handle()};
}

detail::DeviceEvent* SharedEvents::open(const ExposedEvent& event) const {
  return device_ && event.exists ? device_->opened_event(event.handle) : nullptr;
}

bool SharedEvents::defers() const { return device_ && device_->defers(); }

void SharedEvents::submit(void* stream, std::function<void()> kernels) const {
  device_->submit(stream, std::move(kernels));
}

void SharedEvents::wait(void* stream) const {
  const Communicator comm(state_);
  for (int looks = 1; !device_->is_complete(stream); ++looks) {
    if (looks % looks_at_stream_per_poison == 0) {
      comm.progress();  // finds failures of the device library
      comm.check_poison();
      give_way();
    }
  }
}

}  // namespace aloni::comm
