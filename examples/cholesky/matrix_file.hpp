#pragma once
// Reads a square matrix: Matrix Market files (math.nist.gov/MatrixMarket/formats.html), and .npy files of NumPy.
// Elements above the diagonal are dropped. A file that is not symmetric therefore counts as its lower triangle.
#include <aloni/core/error.hpp>
#include <aloni/core/index.hpp>

#include <bit>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cholesky {

using aloni::Index;

/// Column-major; zeros above the diagonal.
struct Matrix {
  Index n = 0;
  std::vector<double> elements = {};

  /// Adds to the element, if it is on or below the diagonal. @pre 0 ≤ i, j < n
  void add(Index i, Index j, double value) {
    if (i >= j) elements[static_cast<std::size_t>(j * n + i)] += value;
  }
};

constexpr Index most_rows = 1 << 17;  // 128 GiB of elements: beyond it a header is taken for damaged

inline Matrix make_matrix(const std::string& path, Index rows, Index columns) {
  if (rows != columns || rows < 1 || rows > most_rows)
    throw aloni::FileError("cholesky", path, std::to_string(rows) + "x" + std::to_string(columns),
                           "a square matrix of 1 to " + std::to_string(most_rows) + " rows");
  return {rows, std::vector<double>(static_cast<std::size_t>(rows * rows))};
}

/// Formats: coordinate and array; real and integer; general and symmetric.
inline Matrix read_matrix_market(const std::string& path) {
  std::ifstream file(path);
  const auto bad = [&](const std::string& value, const std::string& expectation) {
    throw aloni::FileError("cholesky", path, value, expectation);
  };
  if (!file) bad("it cannot be opened", "a file that exists");
  std::string line, banner, object, format, field, symmetry;
  std::getline(file, line);
  for (char& c : line) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::istringstream(line) >> banner >> object >> format >> field >> symmetry;
  const bool is_array = format == "array", is_symmetric = symmetry == "symmetric";
  if (banner != "%%matrixmarket" || object != "matrix" || (!is_array && format != "coordinate"))
    bad(line.substr(0, 60), "%%MatrixMarket matrix, and coordinate or array");
  if (field != "real" && field != "integer") bad("field " + field, "real or integer");
  if (!is_symmetric && symmetry != "general") bad("symmetry " + symmetry, "general or symmetric");
  while (std::getline(file, line) && (line.empty() || line[0] == '%')) {
  }
  Index rows = 0, columns = 0, entries = 0;
  std::istringstream sizes(line);
  if (!(sizes >> rows >> columns) || (!is_array && !(sizes >> entries)))
    bad("sizes " + line.substr(0, 60), "rows, columns and, for coordinates, the number of entries");
  Matrix matrix = make_matrix(path, rows, columns);
  const auto read = [&](auto& value, Index number) {
    if (!(file >> value))
      bad("entry " + std::to_string(number), "as many entries as the sizes say, all of them numbers");
  };
  if (is_array) {
    Index number = 0;
    for (Index j = 0; j < columns; ++j)
      for (Index i = is_symmetric ? j : 0; i < rows; ++i) {
        double value = 0;
        read(value, ++number);
        matrix.add(i, j, value);
      }
  }
  for (Index e = 1; e <= entries; ++e) {
    Index i = 0, j = 0;
    double value = 0;
    read(i, e);
    read(j, e);
    read(value, e);
    if (i < 1 || i > rows || j < 1 || j > columns)
      bad("entry " + std::to_string(e) + " at " + std::to_string(i) + ", " + std::to_string(j),
          "positions from 1 to " + std::to_string(rows));
    if (is_symmetric && i < j) std::swap(i, j);
    matrix.add(i - 1, j - 1, value);
  }
  return matrix;
}

/// Versions 1 to 3, two axes, little-endian float or double, in either order.
inline Matrix read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto bad = [&](const std::string& value, const std::string& expectation) {
    throw aloni::FileError("cholesky", path, value, expectation);
  };
  if (!file) bad("it cannot be opened", "a file that exists");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0) bad("its first bytes", "a .npy file");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const bool version1 = bytes[6] == 1;
  const std::size_t begin = version1 ? 10 : 12;
  const std::size_t length = byte(8) | byte(9) << 8 | (version1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > bytes.size() - begin) bad("a header of " + std::to_string(length) + " bytes", "a whole header");
  const std::string header = bytes.substr(begin, length);
  const bool is_double = header.find("'<f8'") != std::string::npos;
  if (!is_double && header.find("'<f4'") == std::string::npos) bad("header " + header, "elements of type <f8 or <f4");
  const bool by_columns = header.find("'fortran_order': True") != std::string::npos;
  Index rows = 0, columns = 0;
  char comma = 0, end = 0;
  const std::size_t shape = header.find("'shape': (");
  if (shape == std::string::npos) bad("header " + header, "a shape");
  std::istringstream(header.substr(shape + 10)) >> rows >> comma >> columns >> end;
  if (comma != ',' || (end != ')' && end != ',')) bad("header " + header, "a shape of two axes");
  Matrix matrix = make_matrix(path, rows, columns);
  const std::size_t size = is_double ? sizeof(double) : sizeof(float);
  if (bytes.size() - begin - length != static_cast<std::size_t>(rows * columns) * size)
    bad(std::to_string(bytes.size()) + " bytes", "as many elements as the shape says");
  static_assert(std::endian::native == std::endian::little);
  for (Index j = 0; j < columns; ++j)
    for (Index i = j; i < rows; ++i) {
      const Index at = by_columns ? j * rows + i : i * columns + j;
      const char* const from = bytes.data() + begin + length + static_cast<std::size_t>(at) * size;
      if (is_double) {
        double value = 0;
        std::memcpy(&value, from, size);
        matrix.add(i, j, value);
      } else {
        float value = 0;
        std::memcpy(&value, from, size);
        matrix.add(i, j, static_cast<double>(value));
      }
    }
  return matrix;
}

/// Throws FileError that names the path, the value found and the expectation.
inline Matrix read_matrix(const std::string& path) {
  if (path.ends_with(".npy")) return read_npy(path);
  if (path.ends_with(".mtx")) return read_matrix_market(path);
  throw aloni::FileError("cholesky", path, "its name", "a name that ends in .mtx (Matrix Market) or .npy (NumPy)");
}

}  // namespace cholesky
