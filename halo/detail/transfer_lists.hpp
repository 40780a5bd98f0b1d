#pragma once
// The kernels of a transfer, forward and adjoint: packing, unpacking, and copies within the rank. Each is a list of
// strided copies for all items of one element type.
#include <aloni/halo/detail/message_buffer.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/views/strided_copy.hpp>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace aloni::halo::detail {

template <class Exec>
class TransferLists {
 public:
  using item_type = AnyTransferItem<typename Exec::memory_space>;

  TransferLists() = default;
  /// Allocates. label: part of the kernels' labels. @pre agree_on_direct_reading was called
  TransferLists(const Exec& exec, const std::string& label, const std::vector<item_type>& items,
                const MessageBuffer<Exec>& outgoing, const MessageBuffer<Exec>& incoming, bool poisons);

  // All functions below are asynchronous on `exec`.
  void poison(const Exec& exec) const {
    for_each_type([&](const auto& lists) { lists.poison.run(exec); });
  }
  void pack(const Exec& exec, bool adjoint) const {
    for_each_type([&](const auto& lists) { (adjoint ? lists.adjoint_pack : lists.pack).run(exec); });
  }
  void unpack(const Exec& exec, bool adjoint) const {
    for_each_type([&](const auto& lists) { (adjoint ? lists.adjoint_unpack : lists.unpack).run(exec); });
  }
  /// Copies within the rank, and sets cells without a source to zero.
  void copy_local(const Exec& exec, bool adjoint) const {
    for_each_type([&](const auto& lists) { (adjoint ? lists.adjoint_local : lists.local).run(exec); });
  }

 private:
  template <class T>
  struct OfType {
    using element_type = T;
    views::StridedCopyList<T, Exec> poison, pack, unpack, local, adjoint_pack, adjoint_unpack, adjoint_local;
  };

  template <class F>
  void for_each_type(F&& f) const {
    std::apply([&](const auto&... lists) { (f(lists), ...); }, lists_);
  }

  std::tuple<OfType<float>, OfType<double>, OfType<std::int32_t>, OfType<std::int64_t>, OfType<comm::bfloat16>,
             OfType<comm::float16>>
      lists_;
};

}  // namespace aloni::halo::detail
