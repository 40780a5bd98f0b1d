#pragma once
// Shell-style patterns of layer names, as strategies, recomputation and offloading use them.
//
//   matches_pattern("conv*", "conv12");   // true
#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn {

/// Whether a pattern matches a whole name. `*` is any characters, also none; `?` is one character.
/// Takes time of at most the product of the lengths.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// For each name the position of the first pattern that matches it; -1: none. `patterns`: separated by commas.
/// Throws InvalidArgument in the name of `operation` for a pattern that matches no name that is left, also for an empty
/// one.
std::vector<int> match_patterns(const std::string& patterns, const std::vector<std::string>& names,
                                const char* operation);

}  // namespace aloni::nn
