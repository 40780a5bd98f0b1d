#pragma once
// Writes the domain as VTK files for ParaView and VisIt: NAME_<rank>.vti with the block of each rank, and NAME.pvti
// with the position of each block. Values are raw bytes behind the header. The format takes a page of code; the writer
// of VTK itself needs libraries of several hundred megabytes.
#include "simulation.hpp"

#include <aloni/core/error.hpp>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace stencil {

/// Throws FileError with the message of the system if the file cannot be written.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)) {
    errno = 0;
    file_.open(path_, std::ios::binary | std::ios::trunc);
    check();
  }
  void write(const void* data, std::size_t bytes) {
    errno = 0;
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    check();
  }
  void write(const std::string& text) { write(text.data(), text.size()); }
  /// Writes the buffer, which may fail too.
  void close() {
    errno = 0;
    file_.close();
    check();
  }

 private:
  void check() const {
    if (!file_) throw aloni::FileError("stencil", path_, std::generic_category().message(errno), "a file to write to");
  }
  std::string path_;
  std::ofstream file_;
};

struct Output {
  const char* name;
  int first, components;
};
constexpr std::array outputs{Output{"density", density, 1}, Output{"velocity", velocity, 3},
                             Output{"pressure", pressure, 1}, Output{"potential", potential, 3}};

/// "x0 x1 y0 y1 z0 z1": VTK counts corners of cells, which neighbouring pieces share.
inline std::string extent_text(const Box& box) {
  std::ostringstream text;
  for (const Dim d : {Dim::width, Dim::height, Dim::depth})
    text << (d == Dim::width ? "" : " ") << box.lower(d) << ' ' << box.upper(d);
  return text.str();
}

inline std::string opening(const std::string& kind, const Box& all, double width) {
  std::ostringstream text;
  text.precision(17);
  text << "<?xml version=\"1.0\"?>\n<VTKFile type=\"" << kind << "\" version=\"1.0\" byte_order=\""
       << (std::endian::native == std::endian::little ? "LittleEndian" : "BigEndian") << "\" header_type=\"UInt64\">\n<"
       << kind << " WholeExtent=\"" << extent_text(all) << "\" Origin=\"0 0 0\" Spacing=\"" << width << ' ' << width
       << ' ' << width << "\"";
  return text.str();
}

template <class T>
std::string array_text(const Output& output) {
  return std::string(" type=\"") + (sizeof(T) == 4 ? "Float32" : "Float64") + "\" Name=\"" + output.name +
         "\" NumberOfComponents=\"" + std::to_string(output.components) + "\"";
}

template <class T>
void write_piece(const std::string& path, const Simulation<T>& simulation) {
  const auto& view = simulation.view();
  const Box box = view.owned_box();
  const Place place(view);
  const auto cells = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, simulation.cells());
  const auto bytes = [&](const Output& o) {
    return static_cast<std::uint64_t>(place.extent[0] * place.extent[1] * place.extent[2]) *
           static_cast<std::uint64_t>(o.components) * sizeof(T);
  };
  OutputFile file(path);
  std::string header = opening("ImageData", box, simulation.cell_width()) + ">\n<Piece Extent=\"" + extent_text(box) +
                       "\">\n<CellData Scalars=\"density\" Vectors=\"velocity\">\n";
  std::uint64_t offset = 0;
  for (const Output& o : outputs) {
    header += "<DataArray" + array_text<T>(o) + " format=\"appended\" offset=\"" + std::to_string(offset) + "\"/>\n";
    offset += sizeof(std::uint64_t) + bytes(o);
  }
  file.write(header + "</CellData>\n</Piece>\n</ImageData>\n<AppendedData encoding=\"raw\">\n_");
  for (const Output& o : outputs) {
    const std::uint64_t size = bytes(o);
    file.write(&size, sizeof size);
    std::vector<T> row(static_cast<std::size_t>(place.extent[2] * o.components));
    for (Index z = 0; z < place.extent[0]; ++z) {
      for (Index y = 0; y < place.extent[1]; ++y) {
        for (Index x = 0, i = 0; x < place.extent[2]; ++x)
          for (int c = 0; c < o.components; ++c, ++i)
            row[static_cast<std::size_t>(i)] = place.value(cells, o.first + c, z, y, x);
        file.write(row.data(), row.size() * sizeof(T));
      }
    }
  }
  file.write("\n</AppendedData>\n</VTKFile>\n");
  file.close();
}

template <class T>
void write_index(const std::string& name, const Simulation<T>& simulation) {
  const Distribution& domain = simulation.view().distribution();
  OutputFile file(name + ".pvti");
  file.write(opening("PImageData", whole(domain.extents()), simulation.cell_width()) +
             " GhostLevel=\"0\">\n<PCellData Scalars=\"density\" Vectors=\"velocity\">\n");
  for (const Output& o : outputs) file.write("<PDataArray" + array_text<T>(o) + "/>\n");
  file.write("</PCellData>\n");
  for (int rank = 0; rank < domain.ranks(); ++rank) {
    if (domain.owned(rank).empty()) continue;
    file.write("<Piece Extent=\"" + extent_text(domain.owned(rank)) + "\" Source=\"" +
               std::filesystem::path(name).filename().string() + "_" + std::to_string(rank) + ".vti\"/>\n");
  }
  file.write("</PImageData>\n</VTKFile>\n");
  file.close();
}

/// Collective. A full disk or a wrong path on one rank throws on all: FileError there, PeerFailed elsewhere.
template <class T>
void write_vtk(const comm::Communicator& comm, const std::string& name, const Simulation<T>& simulation) {
  comm::collectively(comm, "stencil: writing the picture", [&] {
    if (!simulation.view().owned_box().empty())
      write_piece(name + "_" + std::to_string(comm.rank()) + ".vti", simulation);
    if (comm.rank() == 0) write_index(name, simulation);
  });
}

}  // namespace stencil
