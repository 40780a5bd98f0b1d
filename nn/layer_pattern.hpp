#pragma once
// Shell-style patterns of layer names, as strategies and recomputation use them.
//
//   matches_pattern("conv*", "conv12");   // true
#include <string_view>

namespace aloni::nn {

/// Whether a pattern matches a whole name. `*` is any characters, also none; `?` is one character.
/// Takes time of at most the product of the lengths.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace aloni::nn
