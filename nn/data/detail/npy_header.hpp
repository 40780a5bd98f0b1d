#pragma once
// The text in the header of a .npy file: the literal of a Python dict. Private to nn/data.
#include <aloni/core/index.hpp>

#include <string>
#include <vector>

namespace aloni::nn::detail {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<Index> shape;
};

/// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }". The three keys may have any order.
/// Throws FileError with `operation` and `path`, naming the position, for any other text.
NpyHeader parse_npy_header(const char* operation, const std::string& path, const std::string& text);

}  // namespace aloni::nn::detail
