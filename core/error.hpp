#pragma once
// Typed errors. Every error names the operation, the argument, the value that was given and the expectation. One line
// is enough to act on:
//
//   aloni::nn::Strategy: layer = "conv9": expected the name of a layer of the network (conv1, conv2, fc1)
//
// Which ranks throw is part of each function's contract:
//   - An error in values that are equal on all ranks throws on all ranks.
//   - An error that only one rank can see goes through `comm::collectively` (core/comm/communicator.hpp) or poisons the
//     communicator. The other ranks then throw PeerFailed instead of waiting forever.
#include <stdexcept>
#include <string>

namespace aloni {

/// Base class of all exceptions that aloni throws. `what()` is one line without a trailing newline.
class Error : public std::runtime_error {
 public:
  Error(std::string operation, std::string argument, std::string value, std::string expectation);

  const std::string& operation() const noexcept { return operation_; }
  const std::string& argument() const noexcept { return argument_; }
  const std::string& value() const noexcept { return value_; }
  const std::string& expectation() const noexcept { return expectation_; }

 protected:
  /// Takes the whole line, for errors that read better in another order.
  Error(const std::string& line, std::string operation, std::string argument, std::string value,
        std::string expectation);

 private:
  std::string operation_, argument_, value_, expectation_;
};

/// An argument is outside its documented range (a shape, a rank, a name, a text form).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// The request is valid, but this build or version cannot serve it. The expectation names an alternative.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// A file is missing, truncated or malformed, or cannot be written. `argument()` is the path.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Ghost values were read although the owned values changed after the last exchange (checked in debug builds).
class StaleGhosts : public Error {
 public:
  using Error::Error;
};

/// MPI returned an error code, a message has an unexpected size, or ranks disagree about an operation.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// Memory of another rank cannot be opened. Its process may have ended.
class PeerMemoryLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Values that several ranks keep, and that must be equal, differ. `argument()` names them, `value()` the ranks.
class ReplicasDiffer : public Error {
 public:
  using Error::Error;
};

/// A matrix cannot be factorised: a pivot is not positive (Cholesky), or 0 or not finite (LU). `argument()` is the tile
/// and the column, counted in the whole matrix.
class FactorisationError : public Error {
 public:
  using Error::Error;
};

/// A computation gave NaN or infinity.
class NotFinite : public Error {
 public:
  using Error::Error;
};

/// A rank failed: another rank, or this rank after it poisoned the communicator. `value()` is its message.
class PeerFailed : public Error {
 public:
  /// `rank`: the failed rank in the operation's communicator; -1 if it does not belong to it.
  /// `root_rank`: the failed rank in the communicator that from_mpi() returned; -1: equal to `rank`. Both -1: the
  /// failed rank is not known.
  PeerFailed(std::string operation, int rank, std::string message, int root_rank = -1);
  int rank() const noexcept { return rank_; }
  /// The failed rank in the communicator that from_mpi() returned.
  int root_rank() const noexcept { return root_rank_; }

 private:
  int rank_, root_rank_;
};

}  // namespace aloni
