#pragma once
// The store of a matrix whose tiles are not all in memory.
#include "options.hpp"

#include <aloni/tasks/tile_store.hpp>

#include <filesystem>
#include <memory>
#include <string>

namespace cholesky {

/// Throws FileError if the file cannot be created.
inline std::unique_ptr<aloni::tasks::TileStore> make_store(const Options& options) {
  if (options.swap == "memory") return std::make_unique<aloni::tasks::MemoryTileStore>();
  namespace fs = std::filesystem;
  const fs::path folder = options.swap.empty() ? fs::temp_directory_path() : fs::path(options.swap);
  return std::make_unique<aloni::tasks::FileTileStore>(aloni::io::real_file_system(),
                                                       (folder / "aloni-cholesky-tiles").string());
}

}  // namespace cholesky
