// Compiled only when aloni_ENABLE_ZLIB is ON.
#include <aloni/tools/png.hpp>

#include <zlib.h>

#include <new>

namespace aloni::tools {

std::string zlib_stream(const std::string& bytes) {
  uLongf length = compressBound(static_cast<uLong>(bytes.size()));
  std::string stream(length, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(stream.data()), &length,
                             reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()), 9);
  if (code != Z_OK) throw std::bad_alloc();  // the only error, as the room suffices
  stream.resize(length);
  return stream;
}

}  // namespace aloni::tools
