#pragma once
// What processes of a node need to share a device: memory and events with handles that another process can open. CUDA's
// is in cuda/device_sharing.cpp. Builds without a device have none (no_device_memory.cpp). Tests have one in host
// memory, whose work runs late (unit_tests/support/late_device.hpp).
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace aloni::comm::detail {

/// Of an allocation or of an event, for other processes.
using DeviceHandle = std::array<std::byte, 64>;

/// An event of this process, or the opened event of another one. Throws CommunicationError with the text of the device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual DeviceHandle handle() const = 0;
  /// The event now stands for the work submitted to `stream` so far. @pre an event of this process
  virtual void record(void* stream) = 0;
  /// Later work of `stream` waits for the work of the last record() before this call, in any process. The host does not
  /// wait. An event that was never recorded is reached.
  virtual void await(void* stream) = 0;
};

class DeviceSharing {
 public:
  /// Events of this process at most. PyTorch met a limit of the driver near 1000.
  static constexpr std::size_t max_events = 64;

  DeviceSharing() = default;
  DeviceSharing(const DeviceSharing&) = delete;
  DeviceSharing& operator=(const DeviceSharing&) = delete;
  virtual ~DeviceSharing() = default;

  // --- memory. The owner frees an allocation after all processes that have opened it have closed it (DeviceHeap). ---

  /// Null if the device has not so much memory.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void free(std::byte* allocation) noexcept = 0;
  /// None if the device cannot share this allocation.
  virtual std::optional<DeviceHandle> handle_of(std::byte* allocation) = 0;
  /// Null if this process cannot reach it.
  virtual std::byte* open(const DeviceHandle& handle) = 0;
  virtual void close(std::byte* opened) noexcept = 0;

  // --- events. They are never destroyed: an event must live as long as any process has it open. ---

  /// An event of this process: the first max_events calls make one each, later calls return these in turn. Null if the
  /// device has no events for other processes. Thread-safe.
  DeviceEvent* next_event();
  /// The event of another process. Opened once, then kept. Null if this process cannot open it. Thread-safe.
  DeviceEvent* opened_event(const DeviceHandle& handle);

  // --- work of this process ---

  /// For people: the device and its place in the machine.
  virtual std::string description() = 0;

  /// Waits for all work of this process on the device.
  virtual void synchronise() noexcept = 0;
  /// Whether the work of `stream` is complete. Throws CommunicationError with the text of the device.
  virtual bool is_complete(void* stream) = 0;
  /// Whether kernels must be handed to submit(). Only the device of tests wants this: kernels of a host space would
  /// otherwise run at once.
  virtual bool defers() const { return false; }
  virtual void submit(void* /*stream*/, std::function<void()> work) { work(); }

 protected:
  /// Null if impossible.
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  virtual std::unique_ptr<DeviceEvent> open_event(const DeviceHandle& handle) = 0;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceEvent>> events_;
  std::size_t next_ = 0;
  bool refused_ = false;
  std::map<DeviceHandle, std::unique_ptr<DeviceEvent>> opened_;
};

/// The device of this process. It lives until the process ends. Null in builds without a device.
std::shared_ptr<DeviceSharing> device_sharing_of_process();

}  // namespace aloni::comm::detail
