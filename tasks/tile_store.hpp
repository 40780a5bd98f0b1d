#pragma once
// TileStore: where tiles are that have no place in memory (memory_limit.hpp). Two stores: other memory, and a file.
//
//   FileTileStore store(io::real_file_system(), "/scratch/tiles");
//   StoredMatrix<double> a(TileDistribution(n, n, 256), TilePart::lower, store);
//   a.fill([&](Index i, Index j) { return kernel(i, j); });      // tile by tile
//   cholesky(a, {.bytes = Index{1} << 30}, {.workers = 2});      // the store holds L
//   a.read({3, 1}, elements);
//
// Use a TileMatrix instead if all tiles fit into memory.
#include <aloni/core/io/file_system.hpp>
#include <aloni/tasks/task.hpp>
#include <aloni/tasks/tile_matrix.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace aloni::tasks {

/// Different threads may use different tiles at the same time. None of the functions is collective.
class TileStore {
 public:
  virtual ~TileStore() = default;
  TileStore(const TileStore&) = delete;
  TileStore& operator=(const TileStore&) = delete;

  /// @pre equal size in all calls for a tile. Throws FileError, for example when the disk is full.
  virtual void write(const TileId& tile, std::span<const std::byte> bytes) = 0;
  /// Throws InvalidArgument for a tile that was not written, FileError if it cannot be read.
  virtual void read(const TileId& tile, std::span<std::byte> bytes) = 0;

 protected:
  TileStore() = default;
};

/// Tiles in memory of this process. It stands for a far memory: a copy takes as long as at the given rate.
class MemoryTileStore final : public TileStore {
 public:
  /// @pre bytes_per_second ≥ 0; 0: as fast as memory copies. Throws InvalidArgument.
  explicit MemoryTileStore(double bytes_per_second = 0);

  void write(const TileId& tile, std::span<const std::byte> bytes) override;
  void read(const TileId& tile, std::span<std::byte> bytes) override;

 private:
  void copy(std::span<const std::byte> from, std::byte* to) const;

  double bytes_per_second_;
  std::mutex mutex_;
  std::unordered_map<TileId, std::vector<std::byte>> tiles_;  // the table is guarded by mutex_
};

/// Tiles in a file without a name. It goes with the object, and with a process that is killed.
class FileTileStore final : public TileStore {
 public:
  /// `path`: the begin of its name, in a folder that exists. `files` outlives the object. Throws FileError.
  FileTileStore(io::FileSystem& files, const std::string& path);

  void write(const TileId& tile, std::span<const std::byte> bytes) override;
  void read(const TileId& tile, std::span<std::byte> bytes) override;

 private:
  struct Place {
    Index offset = 0;
    bool written = false;
  };

  std::unique_ptr<io::ScratchFile> file_;
  std::mutex mutex_;
  std::unordered_map<TileId, Place> places_;  // guarded by mutex_
  Index end_ = 0;                             // guarded by mutex_
};

/// The tiles of a matrix that this rank owns, in a store. As TileMatrix; a tile is one piece, column-major.
template <class T>
class StoredMatrix : public OwnedTiles {
 public:
  /// Tiles have no contents before they are written. `store` outlives the object, and serves this matrix only.
  /// @pre as for TileMatrix. Throws InvalidArgument. Not collective.
  StoredMatrix(const views::TileDistribution& distribution, TilePart part, TileStore& store, int rank = 0);

  TileStore& store() const { return *store_; }
  /// Bytes of all tiles of this rank.
  Index bytes() const;

  /// `elements`: rows times columns of the tile. @pre has(t). Throws as TileStore.
  void write(const views::Tile& t, std::span<const T> elements) { store_->write(id(t), std::as_bytes(elements)); }
  void read(const views::Tile& t, std::span<T> elements) const {
    store_->read(id(t), std::as_writable_bytes(elements));
  }
  /// Sets each element of a tile of this rank to f(row, column), counted in the whole matrix. One tile is in memory.
  template <class F>
  void fill(F&& f) {
    const views::TileDistribution& d = distribution();
    std::vector<T> elements;
    for_each_tile([&](const views::Tile& t) {
      elements.clear();
      for (Index j = 0; j < d.width(t.column); ++j)
        for (Index i = 0; i < d.height(t.row); ++i)
          elements.push_back(static_cast<T>(f(d.first_row(t.row) + i, d.first_column(t.column) + j)));
      write(t, elements);
    });
  }
  /// Copies all tiles. @pre equal distribution, part and rank. Throws InvalidArgument, and as TileStore.
  void copy_from(const TileMatrix<T>& a);
  void copy_to(TileMatrix<T>& a) const;

 private:
  static TileId id(const views::Tile& t) {
    return {0, static_cast<std::int32_t>(t.row), static_cast<std::int32_t>(t.column)};
  }
  std::size_t elements(const views::Tile& t) const { return static_cast<std::size_t>(distribution().elements(t)); }

  TileStore* store_;
};

}  // namespace aloni::tasks
