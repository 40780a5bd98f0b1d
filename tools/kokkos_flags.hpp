#pragma once
// Kokkos' own flags on the command line: taken out wherever they stand, before or after the subcommand, and handed on
// to Kokkos.
#include <string>
#include <vector>

namespace aloni::tools {

struct SplitArguments {
  std::vector<std::string> kokkos;  ///< flags that Kokkos knows, with a value that it accepts
  std::vector<std::string> others;  ///< all the rest in their order, the program's name first
  bool help = false;                ///< --kokkos-help is among the flags
  std::string error;                ///< not empty: a flag of Kokkos has a value that would make Kokkos abort
};

/// Flags that start with --kokkos- but aren't Kokkos' stay among the others, where they are refused like any unknown
/// flag.
SplitArguments split_kokkos_flags(const std::vector<std::string>& arguments);

}  // namespace aloni::tools
