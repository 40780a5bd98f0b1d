#pragma once
// Constants of messages and halo exchanges, fitted to their measured times between two ranks (transfer_costs.hpp).
#include <aloni/model/link_kind.hpp>
#include <aloni/model/size_factor.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace aloni::model {

enum class TransferMethod : std::uint8_t {
  send,      ///< a message from the memory of one rank to that of the other
  messages,  ///< a halo exchange: values are packed, sent and unpacked
  copies     ///< a halo exchange: the receiver copies from the sender's memory
};
inline constexpr int transfer_methods = 3;
std::string_view name(TransferMethod method);

/// Of one method over one kind of link. Factors multiply the constants of the machine's links, so they hold for links
/// of other bandwidths too.
struct TransferFit {
  TransferMethod method = TransferMethod::send;
  /// As link_between() has it. Copies need shared_memory; `send` is within_node or between_nodes.
  LinkKind link = LinkKind::within_node;
  bool shared_data = false;     ///< of `send`: the values lie in Communicator::shared_memory()
  double seconds_per_call = 0;  ///< besides messages and bytes, and besides Machine::exchange_seconds
  double message_factor = 1;    ///< of latency and seconds_per_message of the link
  /// Of all times per byte, by the bytes for one rank: of the link, and of packing and unpacking.
  std::vector<SizeFactor> rates = {};
  /// Mean relative errors at sizes left out of the fit: of the fit, and of the links alone. 0: none were left out.
  double error = 0, links_error = 0;

  friend bool operator==(const TransferFit&, const TransferFit&) = default;
};

}  // namespace aloni::model
