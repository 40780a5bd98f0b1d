#pragma once
// The options that bound the memory of a training step: recomputation of blocks, offloading of layers, and a limit.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/index.hpp>
#include <aloni/nn/plan/memory_wish.hpp>

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

/// "1500000", "512M", "1.5GiB", "2 GB" in bytes; K, M, G and T are powers of 1024, with or without "B" or "iB". Empty
/// for other texts, for less than one byte, and for 2^63 bytes or more.
std::optional<Index> parse_bytes(const std::string& text);

/// The wish for model::ChooseOptions. Ways that the options do not name are "auto": the search saves memory if it must.
nn::MemoryWish for_search(nn::MemoryWish wish);

class MemoryArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for a text that is no number of bytes, and for an empty pattern.
  void check() const;
  /// The options that all ranks must pass alike.
  void add_to(comm::ReplicatedValues& values) const;

  /// @pre check() has returned
  nn::MemoryWish wish() const;

 private:
  CLI::App* command_ = nullptr;
  std::string recompute_, offload_, limit_;
};

}  // namespace aloni::tools
