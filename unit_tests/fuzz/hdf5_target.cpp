// Files of HDF5. The library of HDF5 is no part of the project, and a damaged file may crash it. So each input is read
// in a child process; a crash counts only if it is not inside that library.
#include "fuzz_target.hpp"

#ifdef ALONI_FUZZ_HDF5
#include <aloni/core/error.hpp>
#include <aloni/nn/data/hdf5_array.hpp>

#include <fcntl.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace aloni::test {

namespace {

enum Outcome { accepted = 40, refused = 41, wrong = 42 };

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string hdf5_seed(const std::string& path, hid_t type, const std::vector<hsize_t>& shape, bool in_chunks) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
  if (in_chunks) H5Pset_chunk(layout, static_cast<int>(shape.size()), shape.data());
  const hid_t set = H5Dcreate2(file, "images", type, space, H5P_DEFAULT, layout, H5P_DEFAULT);
  const std::vector<unsigned char> elements(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)), 7);
  H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data());
  H5Dclose(set);
  H5Pclose(layout);
  H5Sclose(space);
  H5Fclose(file);
  return contents_of(path);
}

Outcome outcome_of(const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  try {
    for (const std::string& name : nn::hdf5_names(path)) {
      const auto array = nn::open_hdf5(path, name);
      const Index bytes = saturating_product(array->extents().size(), nn::bytes_of(array->type()));
      if (array->size() < 1 || bytes > Index{1} << 24) continue;  // HDF5 stores no zeros: a file may be small
      std::vector<std::byte> into(static_cast<std::size_t>(bytes));
      array->read(array->size() - 1, whole(array->extents()), into);
    }
    return accepted;
  } catch (const Error& e) {
    std::fputs(e.what(), stderr);
    return refused;
  } catch (const std::exception&) {
    return wrong;
  }
}

/// Whether the innermost frame that names HDF5 or aloni is one of HDF5.
bool is_crash_of_hdf5(const std::string& report) {
  const auto library = report.find("libhdf5"), ours = report.find("aloni::");
  return library != std::string::npos && (ours == std::string::npos || library < ours);
}

void read_in_child(const std::string& path, const std::string& report) {
  const pid_t child = fork();
  if (child == 0) {
    const int out = ::open(report.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(out, STDERR_FILENO);
    constexpr rlimit seconds{5, 5};
    ::setrlimit(RLIMIT_CPU, &seconds);
    ::_exit(outcome_of(path));
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || ::wait4(child, &status, 0, &usage) != child) throw std::logic_error("no child process");
  // Of this process at the fork, a chunk, its result, and what the sanitizer keeps.
  constexpr long most_kib = 768 << 10;
  if (usage.ru_maxrss > most_kib)
    throw std::logic_error("the reader took " + std::to_string(usage.ru_maxrss >> 10) + " MiB of memory");
  if (WIFEXITED(status) && WEXITSTATUS(status) == accepted) return;
  const std::string text = contents_of(report);
  if (WIFEXITED(status) && WEXITSTATUS(status) == refused) throw FileError("hdf5", path, text, "");
  if (WIFSIGNALED(status) || is_crash_of_hdf5(text)) throw FileError("hdf5", path, "HDF5 crashed or hung", "");
  throw std::logic_error("a wrong exception or a crash: " + text);
}

}  // namespace

std::vector<FuzzTarget> hdf5_targets(const std::string& folder) {
  const std::string path = folder + "/fuzz.h5";
  return {{.name = "hdf5",
           .seeds = {hdf5_seed(path, H5T_NATIVE_UINT8, {3, 2, 2}, false), hdf5_seed(path, H5T_IEEE_F32BE, {4}, true),
                     hdf5_seed(path, H5T_STD_I64LE, {1, 2, 2, 2, 1}, true)},
           .read =
               [path, report = folder + "/report"](const std::string& input) {
                 std::ofstream(path, std::ios::binary) << input;
                 read_in_child(path, report);
               },
           .heap_per_byte = 64}};
}

}  // namespace aloni::test

#else

namespace aloni::test {

std::vector<FuzzTarget> hdf5_targets(const std::string&) { return {}; }

}  // namespace aloni::test
#endif
