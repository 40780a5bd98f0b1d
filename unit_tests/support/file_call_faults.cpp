// Calls on files below a folder: those by name, and those by a descriptor that open() returned for such a name.
#include "call_faults.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace aloni::test {

namespace {

constexpr int most_descriptors = 4096;
std::array<std::atomic<bool>, most_descriptors> in_folder{};

bool is_in_folder(const char* path) {
  static const char* const folder = std::getenv("ALONI_CALL_FAULT_FOLDER");
  return folder != nullptr && path != nullptr && std::string_view(path).starts_with(folder);
}

bool is_in_folder(int descriptor) {
  return descriptor >= 0 && descriptor < most_descriptors && in_folder[static_cast<std::size_t>(descriptor)];
}

bool fails_at_descriptor(int descriptor) { return is_in_folder(descriptor) && fails_at("file"); }

}  // namespace

bool fails_at_file(const char* path) { return is_in_folder(path) && fails_at("file"); }

void note_open(int descriptor, const char* path) {
  if (descriptor >= 0 && descriptor < most_descriptors)
    in_folder[static_cast<std::size_t>(descriptor)] = is_in_folder(path);
}

}  // namespace aloni::test

extern "C" {

using aloni::test::fails_at_descriptor;
using aloni::test::fails_at_file;
using aloni::test::next;

ssize_t write(int descriptor, const void* bytes, std::size_t count) {
  static auto* const real = next<ssize_t(int, const void*, std::size_t)>("write");
  return fails_at_descriptor(descriptor) ? -1 : real(descriptor, bytes, count);
}

int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  return fails_at_descriptor(descriptor) ? -1 : real(descriptor);
}

int close(int descriptor) {
  static auto* const real = next<int(int)>("close");
  const bool fails = fails_at_descriptor(descriptor);
  aloni::test::note_open(descriptor, nullptr);
  return fails ? -1 : real(descriptor);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return fails_at_file(from) ? -1 : real(from, to);
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  return fails_at_file(path) ? -1 : real(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return fails_at_file(path) ? -1 : real(path, mode);
}

int rmdir(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("rmdir");
  return fails_at_file(path) ? -1 : real(path);
}

}  // extern "C"
