#pragma once
// How two ranks reach each other.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace aloni::model {

/// The first two are copies, the others messages.
enum class LinkKind : std::uint8_t {
  self,           ///< a rank copies within its own memory
  shared_memory,  ///< a rank copies from the memory of another rank of the node
  within_node,    ///< messages between ranks of a node
  between_nodes   ///< messages between nodes
};
inline constexpr std::size_t link_kinds = 4;
std::string_view name(LinkKind kind);

}  // namespace aloni::model
