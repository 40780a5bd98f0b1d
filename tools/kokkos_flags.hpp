#pragma once
// Separates Kokkos' own flags from the other arguments. They may stand anywhere, before or after the subcommand.
#include <string>
#include <vector>

namespace aloni::tools {

struct SplitArguments {
  std::vector<std::string> kokkos;  ///< flags of Kokkos with a value that Kokkos accepts
  std::vector<std::string> others;  ///< all other arguments in their order, the program's name first
  bool help = false;                ///< --kokkos-help is one of the flags
  std::string error;                ///< first flag whose value would make Kokkos abort; empty if there is none
};

/// Unknown flags that start with --kokkos- stay among the others; the parser then rejects them as unknown flags.
SplitArguments split_kokkos_flags(const std::vector<std::string>& arguments);

}  // namespace aloni::tools
