// In place of cuda_kernels.cpp in builds without aloni_ENABLE_CUDA.
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/device_kernels.hpp>
#include <aloni/tasks/detail/instantiate.hpp>

namespace aloni::tasks::detail {

namespace {

[[noreturn]] void refuse_device(const char* operation) {
  throw Unsupported(operation, "aloni_ENABLE_CUDA", "OFF", "a build with aloni_ENABLE_CUDA=ON");
}

}  // namespace

struct DeviceQueue::Handles {
  const char* operation;
};

std::optional<std::string> device_refusal() { return "aloni_ENABLE_CUDA is OFF"; }
std::size_t free_device_bytes(const char* operation) { refuse_device(operation); }
void FreeDevice::operator()(std::byte*) const {}
DeviceBytes allocate_device(const char* operation, std::size_t) { refuse_device(operation); }

PageLock::PageLock(const char* operation, void*, std::size_t) : data_(nullptr) { refuse_device(operation); }
PageLock::~PageLock() = default;

struct DeviceEvent::Handle {};
DeviceEvent::DeviceEvent(const char* operation) { refuse_device(operation); }
DeviceEvent::DeviceEvent(DeviceEvent&&) noexcept = default;
DeviceEvent::~DeviceEvent() = default;

DeviceQueue::DeviceQueue(const char* operation, QueueWork) { refuse_device(operation); }
DeviceQueue::~DeviceQueue() = default;
void DeviceQueue::use_on_this_thread() const {}
void DeviceQueue::copy_to_device(void*, const void*, std::size_t) { refuse_device(handles_->operation); }
void DeviceQueue::copy_to_host(void*, const void*, std::size_t) { refuse_device(handles_->operation); }
void DeviceQueue::record(DeviceEvent&) { refuse_device(handles_->operation); }
void DeviceQueue::wait(const DeviceEvent&) { refuse_device(handles_->operation); }
void DeviceQueue::finish() {}

template <class T>
void DeviceQueue::prepare_potrf(int, int) {
  refuse_device(handles_->operation);
}
template <class T>
void DeviceQueue::potrf(TileBlock<T>, const views::Tile&, Index) {
  refuse_device(handles_->operation);
}
template <class T>
void DeviceQueue::trsm(char, char, char, char, ConstBlock<T>, TileBlock<T>) {
  refuse_device(handles_->operation);
}
template <class T>
void DeviceQueue::subtract_square(ConstBlock<T>, TileBlock<T>) {
  refuse_device(handles_->operation);
}
template <class T>
void DeviceQueue::subtract_product(char, ConstBlock<T>, char, ConstBlock<T>, TileBlock<T>) {
  refuse_device(handles_->operation);
}

#define INSTANTIATE(T)                                                                     \
  template void DeviceQueue::prepare_potrf<T>(int, int);                                   \
  template void DeviceQueue::potrf(TileBlock<T>, const views::Tile&, Index);               \
  template void DeviceQueue::trsm<T>(char, char, char, char, ConstBlock<T>, TileBlock<T>); \
  template void DeviceQueue::subtract_square<T>(ConstBlock<T>, TileBlock<T>);              \
  template void DeviceQueue::subtract_product<T>(char, ConstBlock<T>, char, ConstBlock<T>, TileBlock<T>);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks::detail
