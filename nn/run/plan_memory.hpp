#pragma once
// The memory of the buffers of step plans on one rank. Buffers of one name are one block, also in several plans. Blocks
// of buffers that are in use at different times overlap (nn/plan/memory_layout.hpp).
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>
#include <aloni/nn/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::nn {

template <class Exec>
class PlanMemory {
 public:
  using Mem = typename Exec::memory_space;
  /// Of activations that leave the device: page-locked, so that they are copied beside kernels.
  using HostMem = std::conditional_t<Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible, Mem,
                                     Kokkos::SharedHostPinnedSpace>;

  PlanMemory(const comm::Communicator& comm, const Queue<Exec>& queue) : comm_(comm), queue_(queue) {}

  /// Memory of the caller for a buffer. `owner` keeps it alive; may be null.
  void use(const std::string& name, void* data, std::shared_ptr<const void> owner = {}) {
    blocks_[name] = {data, std::move(owner)};
  }
  /// Memory of the caller in any layout. @pre `data` has the extents of the buffer's box
  template <class U>
  void use(const std::string& name, const views::LocalView<U, Mem>& data, std::shared_ptr<const void> owner) {
    blocks_[name] = {data.data(), std::move(owner), 0, data.layout()};
  }
  /// The memory of the gradients of the next segment of the parameters, for buffers with a place in it.
  void use_gradients(void* data, std::shared_ptr<const void> owner) { gradients_.push_back({data, std::move(owner)}); }
  /// Memory for all buffers of the plans that have none, except learned tensors, which belong to Parameters, and those
  /// that kernels allocate. Buffers with a place in `layout` share memory; the others have their own. Buffers that
  /// other ranks read lie in memory that the node shares. The memory is zero; with `poison`, that of the layout is NaN
  /// (tests). Not collective.
  void allocate(const std::vector<const StepPlan*>& plans, const MemoryLayout& layout, bool poison = false) {
    const auto poisoned = [&](void* data, Index bytes) {
      Kokkos::deep_copy(queue_.space(), Kokkos::View<std::byte*, Mem>(static_cast<std::byte*>(data), bytes),
                        std::byte{0xff});  // a NaN in all types
    };
    const auto arena = [&](const std::string& name, Index bytes, bool in_shared_memory) {
      const Block all = allocate<double>(name, bytes / 8, in_shared_memory);
      if (poison) poisoned(all.data, bytes);
      return all;
    };
    const std::map<MemoryKind, Block> arenas{{MemoryKind::own, arena("buffers", layout.private_bytes, false)},
                                             {MemoryKind::shared, arena("shared_buffers", layout.shared_bytes, true)},
                                             {MemoryKind::host, allocate_on_host(layout.host_bytes, poison)}};
    for (const auto& [name, place] : layout.places) {
      const Block& all =
          place.segment >= 0 ? gradients_.at(static_cast<std::size_t>(place.segment)) : arenas.at(place.memory);
      blocks_[name] = {static_cast<std::byte*>(all.data) + place.offset, all.owner,
                       static_cast<std::size_t>(place.bytes)};
    }
    for (const StepPlan* plan : plans) {
      for (const PlanBuffer& b : plan->buffers)
        if (poison && b.role == BufferRole::parameter_gradients && layout.places.contains(b.name))
          poisoned(blocks_.at(b.name).data, b.bytes());
      for (const PlanBuffer& b : plan->buffers)
        if (b.alias == no_buffer && !b.by_kernels && !is_learned(b) && !blocks_.contains(b.name))
          blocks_[b.name] = b.on_host() ? allocate_on_host(b.bytes()) : allocate(b);
    }
  }

  /// First element of the memory of a buffer, or of that of its root.
  template <class U>
  U* data(const StepPlan& plan, BufferId b) const {
    return static_cast<U*>(block(plan, b).data);
  }
  std::shared_ptr<const void> owner(const StepPlan& plan, BufferId b) const { return block(plan, b).owner; }

  /// The part of a buffer that `box` covers, in the buffer's own indices. @pre contains(the buffer's box, box)
  template <class U>
  views::LocalView<U, Mem> view(const StepPlan& plan, BufferId b, const views::Box& box) const {
    const views::Box& all = plan.buffers[static_cast<std::size_t>(b)].box;
    const std::optional<Kokkos::LayoutStride>& given = block(plan, b).layout;
    const auto layout = given ? *given : detail::dense_layout(views::extents_of(all).values);
    return part_of(views::LocalView<U, Mem>(data<U>(plan, b), layout), all, box);
  }
  template <class U>
  views::LocalView<U, Mem> view(const StepPlan& plan, BufferId b) const {
    return view<U>(plan, b, plan.buffers[static_cast<std::size_t>(b)].box);
  }
  /// All elements of a buffer in the order of memory; extent 0 for no_buffer. @pre the buffer is dense
  template <class U>
  Kokkos::View<U*, Mem> flat(const StepPlan& plan, BufferId b) const {
    if (b == no_buffer) return {};
    const auto elements = static_cast<std::size_t>(plan.buffers[static_cast<std::size_t>(b)].box.size());
    return Kokkos::View<U*, Mem>(data<U>(plan, b), elements);
  }

  /// The accesses of a node. Buffers are identified by their blocks.
  std::vector<Access> accesses(const StepPlan& plan, const PlanNode& node) const {
    std::vector<Access> accesses = accesses_of(plan, node);
    for (Access& access : accesses) {
      const auto found = blocks_.find(static_cast<const PlanBuffer*>(access.memory)->name);
      if (found == blocks_.end()) continue;
      access.memory = &found->second;
      access.address = reinterpret_cast<std::uintptr_t>(found->second.data);
      access.bytes = found->second.shared_bytes;
    }
    return accesses;
  }

 private:
  struct Block {
    void* data = nullptr;
    std::shared_ptr<const void> owner = {};
    std::size_t shared_bytes = 0;                     ///< of a block in which other buffers may lie too
    std::optional<Kokkos::LayoutStride> layout = {};  ///< of memory that is not dense
  };

  const Block& block(const StepPlan& plan, BufferId b) const {
    return blocks_.at(plan.buffers[static_cast<std::size_t>(plan.root(b))].name);
  }

  Block allocate(const PlanBuffer& b) const {
    switch (b.type) {
      case ElementType::float32:
        return allocate<float>(b.name, b.box.size(), b.shared);
      case ElementType::float64:
        return allocate<double>(b.name, b.box.size(), b.shared);
      case ElementType::bfloat16:
        return allocate<comm::bfloat16>(b.name, b.box.size(), b.shared);
      case ElementType::float16:
        return allocate<comm::float16>(b.name, b.box.size(), b.shared);
      case ElementType::int32:
        break;
    }
    return allocate<std::int32_t>(b.name, b.box.size(), b.shared);
  }
  static Block allocate_on_host(Index bytes, bool poison = false) {
    const Kokkos::View<std::byte*, HostMem> view(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "aloni::nn::offloaded"), static_cast<std::size_t>(bytes));
    if (poison) std::fill_n(view.data(), view.size(), std::byte{0xff});
    return {view.data(), std::make_shared<Kokkos::View<std::byte*, HostMem>>(view)};
  }
  template <class U>
  Block allocate(const std::string& name, Index elements, bool shared) const {
    using View = Kokkos::View<U*, Mem>;
    const std::string label = "aloni::nn::" + name;
    const auto n = static_cast<std::size_t>(elements);
    View view;
    std::shared_ptr<void> memory;
    if (shared && n > 0) {
      std::tie(view, memory) = comm::allocate_shared<U>(comm_, queue_.space(), label, n);
    } else {
      view = View(Kokkos::view_alloc(queue_.space(), label), n);
    }
    if (!memory) memory = std::make_shared<View>(view);
    return {view.data(), std::move(memory)};
  }

  comm::Communicator comm_;
  Queue<Exec> queue_;
  std::map<std::string, Block> blocks_;
  std::vector<Block> gradients_;  ///< of each segment
};

}  // namespace aloni::nn
