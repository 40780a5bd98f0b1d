#pragma once
// Checks that all ranks pass equal arguments.
#include <aloni/core/comm/communicator.hpp>

#include <cstdint>
#include <string>

namespace aloni::halo::detail {

/// Throws InvalidArgument on all ranks if their digests differ. In the message, argument `what` is "different on
/// different ranks", and `expectation` was expected. Collective.
void check_agreement(const comm::Communicator& comm, const char* operation, const char* what, std::uint64_t digest,
                     const std::string& expectation = "equal values on all ranks");

}  // namespace aloni::halo::detail
