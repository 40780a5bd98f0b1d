#pragma once
// Finds the known name that a mistyped one was meant to be.
#include <span>
#include <string>
#include <string_view>

namespace aloni {

/// The known name with the fewest insertions, deletions, replacements and swaps of neighbouring characters; the first
/// of several. Empty if more than a third of the longer name would change, at least one character.
/// Case does not count. Source of the distance: Damerau (1964), in the restricted form without edits of swapped pairs.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

/// "; did you mean b?" with the nearest name; empty if there is none. For the end of an error text.
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

/// "one of: a, b, c", with did_you_mean(). For the expectation in an error text.
std::string one_of(std::string_view name, std::span<const std::string> known);

}  // namespace aloni
