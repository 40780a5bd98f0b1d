#pragma once
// Typed errors. Every error names the operation, the argument, the value that was given and what was expected, so that
// its one line is enough to act on:
//
//   aloni::nn::Strategy: layer = "conv9": expected the name of a layer of the network (conv1, conv2, fc1)
//
// Which ranks see an error is part of each function's contract: what is equal on all ranks throws on all ranks; what
// one rank alone can see goes through `comm::collectively` (core/comm/communicator.hpp) or poisons the communicator, so
// that the other ranks throw PeerFailed instead of waiting forever.
#include <stdexcept>
#include <string>

namespace aloni {

/// Root of all exceptions that aloni throws. `what()` is one line without a trailing newline.
class Error : public std::runtime_error {
 public:
  Error(std::string operation, std::string argument, std::string value, std::string expectation);

  const std::string& operation() const noexcept { return operation_; }
  const std::string& argument() const noexcept { return argument_; }
  const std::string& value() const noexcept { return value_; }
  const std::string& expectation() const noexcept { return expectation_; }

 protected:
  /// For an error whose line reads better in another order.
  Error(const std::string& line, std::string operation, std::string argument, std::string value,
        std::string expectation);

 private:
  std::string operation_, argument_, value_, expectation_;
};

/// An argument outside its documented range (a shape, a rank, a name, a text form).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A valid request that this build or version cannot serve; the expectation says what would work instead.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, truncated, malformed or cannot be written. `argument()` is the path.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Ghost values were read although the owned values changed after the last exchange (checked in debug builds).
class StaleGhosts : public Error {
 public:
  using Error::Error;
};

/// MPI returned an error code, or a message arrived with an unexpected size.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// Another rank failed (or this one: it has poisoned the communicator itself). `value()` is its message.
class PeerFailed : public Error {
 public:
  /// `rank` counts in the communicator of the operation, -1 when the failed rank is not in it; `root_rank` counts in
  /// the communicator that it was split from (-1: the same number).
  PeerFailed(std::string operation, int rank, std::string message, int root_rank = -1);
  int rank() const noexcept { return rank_; }
  /// The same rank in the communicator that from_mpi() returned.
  int root_rank() const noexcept { return root_rank_; }

 private:
  int rank_, root_rank_;
};

}  // namespace aloni
