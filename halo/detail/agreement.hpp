#pragma once
// Whether all ranks mean the same.
#include <aloni/core/comm/communicator.hpp>

#include <cstdint>
#include <string>

namespace aloni::halo::detail {

/// Collective. Throws InvalidArgument on all ranks, "different ones on different ranks" where `expectation` was expected of `what`, unless
/// all pass the same digest.
void check_agreement(const comm::Communicator& comm, const char* operation, const char* what, std::uint64_t digest,
                     const std::string& expectation = "the same on all ranks");

}  // namespace aloni::halo::detail
