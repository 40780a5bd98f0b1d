#pragma once
// The parts of libaloni_call_faults.so (call_faults.cpp).
#include <dlfcn.h>

#include <string_view>

namespace aloni::test {

/// Counts a call of this name, and acts if it is the chosen one. Returns whether the call must fail. Its errno is set.
bool fails_at(std::string_view name);

/// As fails_at("file"), if the path lies in ALONI_CALL_FAULT_FOLDER.
bool fails_at_file(const char* path);
/// The descriptor of a file or folder that was opened; -1: none.
void note_open(int descriptor, const char* path);

/// The function behind the one of this library.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace aloni::test
