#include <aloni/tasks/tile_store.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/instantiate.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace aloni::tasks {

namespace {

constexpr const char* tile_store_name = "aloni::tasks::TileStore";

[[noreturn]] void refuse_unwritten(const TileId& tile) {
  throw InvalidArgument(tile_store_name, "tile", to_string(tile), "a tile that was written before");
}

void check_size(const TileId& tile, std::size_t before, std::size_t wanted) {
  if (before != wanted)
    throw InvalidArgument(tile_store_name, "bytes of " + to_string(tile), std::to_string(wanted),
                          std::to_string(before) + ", as in earlier calls");
}

}  // namespace

MemoryTileStore::MemoryTileStore(double bytes_per_second) : bytes_per_second_(bytes_per_second) {
  if (!(bytes_per_second >= 0))
    throw InvalidArgument("aloni::tasks::MemoryTileStore", "bytes_per_second", std::to_string(bytes_per_second),
                          "at least 0");
}

void MemoryTileStore::copy(std::span<const std::byte> from, std::byte* to) const {
  const auto start = std::chrono::steady_clock::now();
  std::ranges::copy(from, to);
  if (bytes_per_second_ > 0)
    std::this_thread::sleep_until(
        start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                    std::chrono::duration<double>(static_cast<double>(from.size()) / bytes_per_second_)));
}

void MemoryTileStore::write(const TileId& tile, std::span<const std::byte> bytes) {
  std::vector<std::byte>* place = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = tiles_.try_emplace(tile);
    if (is_new) at->second.resize(bytes.size());
    place = &at->second;  // stays there while other tiles are added
  }
  check_size(tile, place->size(), bytes.size());
  copy(bytes, place->data());
}

void MemoryTileStore::read(const TileId& tile, std::span<std::byte> bytes) {
  const std::vector<std::byte>* place = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto at = tiles_.find(tile);
    if (at == tiles_.end()) refuse_unwritten(tile);
    place = &at->second;
  }
  check_size(tile, place->size(), bytes.size());
  copy(*place, bytes.data());
}

FileTileStore::FileTileStore(io::FileSystem& files, const std::string& path) : file_(files.create_scratch(path)) {}

void FileTileStore::write(const TileId& tile, std::span<const std::byte> bytes) {
  Index offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = places_.try_emplace(tile, Place{.offset = end_});
    if (is_new) end_ += static_cast<Index>(bytes.size());
    offset = at->second.offset;
  }
  file_->write_at(offset, bytes);
  const std::lock_guard lock(mutex_);
  places_.at(tile).written = true;
}

void FileTileStore::read(const TileId& tile, std::span<std::byte> bytes) {
  Index offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto at = places_.find(tile);
    if (at == places_.end() || !at->second.written) refuse_unwritten(tile);
    offset = at->second.offset;
  }
  file_->read_at(offset, bytes);
}

template <class T>
StoredMatrix<T>::StoredMatrix(const views::TileDistribution& distribution, TilePart part, TileStore& store, int rank)
    : OwnedTiles("aloni::tasks::StoredMatrix", distribution, part, rank, "are stored"), store_(&store) {}

template <class T>
Index StoredMatrix<T>::bytes() const {
  Index all = 0;
  for_each_tile([&](const views::Tile& t) { all += distribution().elements(t); });
  return all * static_cast<Index>(sizeof(T));
}

template <class T>
void StoredMatrix<T>::copy_from(const TileMatrix<T>& a) {
  check_equal("aloni::tasks::StoredMatrix::copy_from", "a", a);
  for_each_tile([&](const views::Tile& t) { write(t, std::span(a.tile(t), elements(t))); });
}

template <class T>
void StoredMatrix<T>::copy_to(TileMatrix<T>& a) const {
  check_equal("aloni::tasks::StoredMatrix::copy_to", "a", a);
  for_each_tile([&](const views::Tile& t) { read(t, std::span(a.tile(t), elements(t))); });
}

#define INSTANTIATE(T) template class StoredMatrix<T>;
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
