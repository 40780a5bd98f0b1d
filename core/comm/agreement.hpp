#pragma once
// Values that must be equal on all ranks, compared together: the arguments of a training, the tensors of a network.
//
//   ReplicatedValues values;
//   values.add("seed", seed).add("labels", std::as_bytes(std::span(labels)));
//   check_equal(comm, "aloni::nn::train", values);   // the error of a rank that passed another seed, on all ranks:
//   // aloni::nn::train: seed = 1 on ranks 0, 2; 7 on rank 1: expected equal values on all ranks
//
// Equal values cost one all-reduce of 16 bytes. Only ranks that differ exchange more, to find the first value that
// differs and its ranks.
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::comm {

class Communicator;

/// Values with names, in a fixed order. Pure.
class ReplicatedValues {
 public:
  struct Value {
    std::string name, text;
  };

  ReplicatedValues& add(std::string name, std::string text) {
    values_.push_back({std::move(name), std::move(text)});
    return *this;
  }
  /// All bits count, also of floating-point numbers.
  template <class T>
  requires std::integral<T> || std::floating_point<T> ReplicatedValues& add(std::string name, T value) {
    return add(std::move(name), text_of(value));
  }
  /// Compared by their number and a checksum of 32 bits.
  ReplicatedValues& add(std::string name, std::span<const std::byte> bytes);

  const std::vector<Value>& values() const { return values_; }

 private:
  static std::string text_of(bool value) { return value ? "true" : "false"; }
  static std::string text_of(double value);
  template <std::integral T>
  static std::string text_of(T value) {
    return std::to_string(value);
  }

  std::vector<Value> values_;
};

/// The first value that differs.
struct Disagreement {
  std::string name;
  std::string found;  ///< "1 on ranks 0, 2; 7 on rank 1"
};

/// The first value that differs between ranks; nothing if all are equal. `operation`: name of the call, compared first.
/// Collective; the result is equal on all ranks. Throws PeerFailed.
std::optional<Disagreement> find_disagreement(const Communicator& comm, const std::string& operation,
                                              const ReplicatedValues& values);

/// Collective. Throws InvalidArgument on all ranks if a value differs; the communicator stays usable.
/// Throws PeerFailed.
void check_equal(const Communicator& comm, const std::string& operation, const ReplicatedValues& values);

/// "rank 3", "ranks 0, 2, 5 to 9".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace aloni::comm
