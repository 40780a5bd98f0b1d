#pragma once
// What can go wrong with messages, one kind at a time.
#include <aloni/core/comm/faults.hpp>

#include <ostream>
#include <vector>

namespace aloni::test {

/// A kind of fault, for tests that go through all of them.
struct FaultCase {
  const char* name;
  comm::Faults faults;
  bool harmless;  ///< nothing is lost or changed
};

/// For GoogleTest.
inline void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.name; }

inline std::vector<FaultCase> fault_cases() {
  return {{"Delay", {.delay = 0.5}, true},        {"NoRoom", {.no_room = 0.5}, true},
          {"Truncate", {.truncate = 0.2}, false}, {"Corrupt", {.corrupt = 0.2}, false},
          {"Lose", {.lose = 0.2}, false},         {"Death", {.dies_after = 1}, false}};
}

}  // namespace aloni::test
