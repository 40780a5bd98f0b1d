#include <aloni/core/comm/transport.hpp>

#include <aloni/core/error.hpp>

namespace aloni::comm {

std::byte* Transport::exposed(int peer, const SharedAddress&, std::size_t bytes) {
  throw Unsupported(
      "aloni::comm::Transport::exposed", "transport", name(),
      "shared memory, for direct access to " + std::to_string(bytes) + " bytes of rank " + std::to_string(peer));
}

}  // namespace aloni::comm
