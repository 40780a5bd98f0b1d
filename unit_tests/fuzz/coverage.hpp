#pragma once
// Edges of the control flow that inputs have reached, in files compiled with -fsanitize-coverage=trace-pc
// (aloni_FUZZ_COVERAGE). The compiler calls a function at each basic block. Other builds reach no edges.
// Source of the method: Zalewski, "american fuzzy lop", technical details (hashed edges, counts in powers of two).
#include <cstddef>

namespace aloni::test {

/// Forgets the edges of the last input.
void begin_coverage();
/// Adds the edges of the last input to all edges. Returns whether one was new, or was taken more often than before.
bool end_coverage();
/// Edges of all inputs so far.
std::size_t edges_reached();

}  // namespace aloni::test
