#include <aloni/halo/detail/agreement.hpp>

#include <aloni/core/error.hpp>

namespace aloni::halo::detail {

void check_agreement(const comm::Communicator& comm, const char* operation, const char* what, std::uint64_t digest,
                     const std::string& expectation) {
  if (comm.all_reduce(digest, comm::Reduction::min) != comm.all_reduce(digest, comm::Reduction::max))
    throw InvalidArgument(operation, what, "different on different ranks", expectation);
}

}  // namespace aloni::halo::detail
