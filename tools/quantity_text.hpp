#pragma once
// Quantities as short texts for people.
#include <aloni/core/index.hpp>

#include <string>

namespace aloni::tools {

/// "812 B", "17.3 KiB", "2048.0 MiB": the largest unit in which the number is below 10,240.
std::string bytes_text(Index bytes);

/// "61706" as "61.7 k": at most 10,000 of a unit (k, M, G, T, P).
std::string number_text(double number);

/// "1.23 s", "12.3 ms", "456 us": three digits, and more above 999 s.
std::string seconds_text(double seconds);

}  // namespace aloni::tools
