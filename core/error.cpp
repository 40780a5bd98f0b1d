#include <aloni/core/error.hpp>

#include <aloni/core/printable.hpp>

#include <utility>

namespace aloni {

namespace {

std::string one_line(const std::string& operation, const std::string& argument, const std::string& value,
                     const std::string& expectation) {
  std::string line = operation;
  if (!argument.empty()) line += ": " + argument;
  if (!value.empty()) line += (argument.empty() ? ": " : " = ") + value;
  if (!expectation.empty()) line += ": expected " + expectation;
  return line;
}

std::string failed_rank(int rank, int root_rank) {
  if (rank < 0 && root_rank < 0) return "a rank";
  const std::string root = "rank " + std::to_string(root_rank) + " of the root communicator";
  if (rank < 0) return root;
  const std::string own = "rank " + std::to_string(rank);
  return root_rank < 0 || root_rank == rank ? own : own + " (" + root + ")";
}

}  // namespace

Error::Error(std::string operation, std::string argument, std::string value, std::string expectation)
    : std::runtime_error(printable(one_line(operation, argument, value, expectation))),
      operation_(std::move(operation)),
      argument_(std::move(argument)),
      value_(std::move(value)),
      expectation_(std::move(expectation)) {}

Error::Error(const std::string& line, std::string operation, std::string argument, std::string value,
             std::string expectation)
    : std::runtime_error(printable(line)),
      operation_(std::move(operation)),
      argument_(std::move(argument)),
      value_(std::move(value)),
      expectation_(std::move(expectation)) {}

PeerFailed::PeerFailed(std::string operation, int rank, std::string message, int root_rank)
    : Error(operation + ": " + failed_rank(rank, root_rank) + " failed: " + message, operation,
            failed_rank(rank, root_rank) + " failed", message, ""),
      rank_(rank),
      root_rank_(root_rank < 0 ? rank : root_rank) {}

}  // namespace aloni
