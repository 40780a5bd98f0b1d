#pragma once
// Quantities as short texts for people: bytes, seconds, counts, shares. Pure.
//
//   seconds_text(0.0123);   // "12.3 ms"
//   bytes_text(17'715);     // "17.3 KiB"
#include <aloni/core/index.hpp>

#include <string>

namespace aloni::model {

// --- bytes ---

/// "812 B", "17.3 KiB", "2048.0 MiB": the largest unit in which the number is below 10,240.
std::string bytes_text(Index bytes);
/// "4 MiB", "1536 KiB": whole units, for limits that are powers of two. Bytes beyond a whole KiB are dropped.
std::string whole_bytes_text(Index bytes);

// --- seconds ---

/// "1.23 s", "12.3 ms", "456 us", "1.00 ns": always three digits, and more above 999 s. For columns.
std::string seconds_text(double seconds);
/// "1.2 s", "12.3 ms", "0.5 us": at most three digits, no zeros at the end, and a sign. For sentences.
std::string duration_text(double seconds);
/// "12.34", "1234" microseconds without the unit; "-" below 0, which means "not measured".
std::string microseconds_text(double seconds);

// --- numbers ---

/// "61706" as "61.7 k": at most 10,000 of a unit (k, M, G, T, P).
std::string number_text(double number);
/// Three digits, or all before the point: "12.3", "1234".
std::string three_digits_text(double number);
/// Six digits, as a stream writes them: "0.001", "1e+16".
std::string six_digits_text(double number);
/// "12.3 %"; "-" below 0, which means "not known".
std::string percent_text(double share);
/// "12.3 Gflop/s"; "not measured" up to 0.
std::string rate_text(double per_second, const std::string& unit);

// --- counts ---

/// "1 rank", "4 ranks".
std::string count_text(Index number, const std::string& noun);
/// "6 ranks on 2 nodes". `ranks_per_node`: of full nodes; 0: all ranks are on one.
std::string ranks_text(int ranks, int ranks_per_node);

}  // namespace aloni::model
