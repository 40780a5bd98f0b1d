#pragma once
// One case for each kind of fault that messages can have.
#include <aloni/core/comm/faults.hpp>

#include <ostream>
#include <vector>

namespace aloni::test {

/// A kind of fault, as the parameter of a test.
struct FaultCase {
  const char* name;
  comm::Faults faults;
  bool harmless;       ///< messages arrive late, but whole
  bool waits = false;  ///< an error comes at the time limit only
};

/// The name that GoogleTest prints.
inline void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.name; }

inline std::vector<FaultCase> fault_cases() {
  return {{"Delay", {.delay = 0.5}, true},
          {"NoRoom", {.no_room = 0.5}, true},
          {"Truncate", {.truncate = 0.2}, false},
          {"Corrupt", {.corrupt = 0.2}, false},
          {"Lose", {.lose = 0.2}, false, true},
          {"Death", {.dies_after = 1}, false, true},
          {"Slow", {.slow_rank = 1, .slow_by = std::chrono::microseconds(40)}, true}};
}

}  // namespace aloni::test
