#pragma once
// Data files written byte by byte, as NumPy and the makers of MNIST write them, and a fuzz test of readers.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/sample_array.hpp>

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <support/temporary_folder.hpp>
#include <vector>

namespace aloni::test {

using FileBytes = std::string;

/// What numpy.save writes (version 1): the header ends at a multiple of 64 bytes.
inline FileBytes npy(const std::string& descr, const std::string& shape, const FileBytes& elements, char version = 1) {
  const std::size_t start = version == 1 ? 10 : 12;
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  while ((start + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  FileBytes bytes = std::string("\x93NUMPY") + version + '\0';
  for (std::size_t i = 8; i < start; ++i) bytes += static_cast<char>(text.size() >> (8 * (i - 8)));
  return bytes + text + elements;
}

inline FileBytes idx(const std::vector<std::uint32_t>& extents, const FileBytes& elements) {
  FileBytes bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const auto e : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(e >> shift);
  return bytes + elements;
}

template <class T>
FileBytes elements_of(const std::vector<T>& values) {
  FileBytes bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// 0, 1, 2, … modulo 251: neighbours in any dimension differ.
template <class T>
std::vector<T> counted(Index count, Index first = 0) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = static_cast<T>((first + i) % 251 % 127);
  return values;
}

/// `Folder`: TemporaryFolder, or SharedFolder on rank 0.
template <class Folder>
std::string write_file(const Folder& folder, const std::string& name, const FileBytes& bytes) {
  const std::string path = folder.path(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

using Opener = std::function<std::shared_ptr<const nn::SampleArray>(const std::string& path)>;

/// The message of the FileError, which names `path`.
inline std::string refusal_of(const Opener& open, const std::string& path) {
  try {
    open(path);
  } catch (const FileError& e) {
    EXPECT_EQ(e.argument(), path);
    return e.what();
  }
  return "not refused";
}

/// Every shorter file is refused. A file with a changed byte of its header is refused, or is an array that can be read
/// to its end. It then has no more bytes than the file.
inline void expect_robust(const Opener& open, const TemporaryFolder& folder, const FileBytes& bytes,
                          std::size_t header) {
  for (std::size_t n = 0; n < bytes.size(); ++n)
    ASSERT_NE(refusal_of(open, write_file(folder, "fuzz", bytes.substr(0, n))), "not refused") << n << " bytes";
  for (std::size_t at = 0; at < header; ++at) {
    for (const int flip : {0x01, 0x04, 0x10, 0x80, 0xff}) {
      FileBytes changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      const std::string path = write_file(folder, "fuzz", changed);
      try {
        const auto array = open(path);
        const Index sample = array->extents().size() * nn::bytes_of(array->type());
        ASSERT_LE(sample * array->size(), std::ssize(bytes)) << "byte " << at << " flipped by " << flip;
        std::vector<std::byte> into(static_cast<std::size_t>(sample));
        array->read(array->size() - 1, whole(array->extents()), into);
      } catch (const FileError&) {
      }
    }
  }
}

}  // namespace aloni::test
