#include <aloni/tasks/detail/device_slots.hpp>

#include <exception>
#include <utility>

namespace aloni::tasks::detail {

DeviceSlots::DeviceSlots(const char* operation, std::function<std::byte*(const TileId&)> host)
    : operation_(operation),
      host_(std::move(host)),
      in_(operation, QueueWork::copies),
      out_(operation, QueueWork::copies) {}

DeviceSlots::~DeviceSlots() {
  try {
    finish();
  } catch (const std::exception&) {  // the error of the run itself is more important
  }
}

std::byte* DeviceSlots::allocate(Index tiles, Index slots, std::size_t bytes) {
  last_tile_.assign(static_cast<std::size_t>(slots), -1);
  copied_.reserve(static_cast<std::size_t>(tiles));
  for (Index t = 0; t < tiles; ++t) copied_.emplace_back(operation_);
  if (bytes > 0) memory_ = allocate_device(operation_, bytes);
  bytes_ = bytes;
  return memory_.get();
}

void DeviceSlots::load(const TileMove& move) {
  in_.use_on_this_thread();
  DeviceEvent& copied = copied_[static_cast<std::size_t>(move.number)];
  std::int32_t& last = last_tile_[static_cast<std::size_t>(move.slot)];
  in_.wait(copied);
  if (last >= 0 && last != move.number) in_.wait(copied_[static_cast<std::size_t>(last)]);
  in_.copy_to_device(move.contents.data(), host_(move.tile), move.contents.size());
  in_.record(copied);
  last = move.number;
}

void DeviceSlots::write_back(const TileMove& move) {
  out_.use_on_this_thread();
  out_.copy_to_host(host_(move.tile), move.contents.data(), move.contents.size());
  out_.record(copied_[static_cast<std::size_t>(move.number)]);
  last_tile_[static_cast<std::size_t>(move.slot)] = move.number;
}

void DeviceSlots::finish() {
  in_.finish();
  out_.finish();
}

}  // namespace aloni::tasks::detail
