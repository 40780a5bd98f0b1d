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

/// "1 rank", "4 ranks".
std::string count_text(Index number, const std::string& noun);

/// "6 ranks on 2 nodes". `ranks_per_node`: of full nodes; 0: all ranks are on one.
std::string ranks_text(int ranks, int ranks_per_node);

}  // namespace aloni::tools
