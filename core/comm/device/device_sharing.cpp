#include <aloni/core/comm/device/device_sharing.hpp>

namespace aloni::comm::detail {

DeviceEvent* DeviceSharing::next_event() {
  const std::lock_guard lock(mutex_);
  if (events_.size() < max_events && !refused_) {
    if (auto event = make_event()) return events_.emplace_back(std::move(event)).get();
    refused_ = true;  // the events that exist serve
  }
  return events_.empty() ? nullptr : events_[next_++ % events_.size()].get();
}

DeviceEvent* DeviceSharing::opened_event(const DeviceHandle& handle) {
  const std::lock_guard lock(mutex_);
  auto& event = opened_[handle];
  if (!event) event = open_event(handle);
  return event.get();
}

}  // namespace aloni::comm::detail
