#pragma once
// RankFailure: the error that ends a run of tasks on one rank, as it travels to the other ranks.
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace aloni::tasks::detail {

struct RankFailure {
  int rank = -1;                  ///< on which the error was thrown
  bool of_factorisation = false;  ///< a FactorisationError; otherwise only `value` is set, to the text of the error
  std::string operation, argument, value, expectation;
};

/// The failure of this rank. Texts are truncated to 1000 bytes.
RankFailure failure_of(int rank, const std::exception_ptr& error);

std::vector<std::byte> to_bytes(const RankFailure& failure);
/// Throws CommunicationError for other bytes than those of to_bytes(). `source`: their sender, for the text.
RankFailure failure_from(std::span<const std::byte> bytes, int source);

/// FactorisationError that names the rank, or PeerFailed. `root_rank`: as for PeerFailed
[[noreturn]] void throw_failure(const char* operation, const RankFailure& failure, int root_rank);

}  // namespace aloni::tasks::detail
