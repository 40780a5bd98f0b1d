#include <aloni/tasks/tile_matrix.hpp>

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/huge_pages.hpp>
#include <aloni/tasks/detail/instantiate.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace aloni::tasks {

namespace {

/// Throws InvalidArgument unless the tiles belong to the ranks of `comm`.
const comm::Communicator& checked(const comm::Communicator& comm, const views::TileDistribution& distribution) {
  if (distribution.ranks() == comm.size()) return comm;
  throw InvalidArgument("aloni::tasks::TileMatrix", "distribution", to_string(distribution),
                        "tiles on the " + std::to_string(comm.size()) + " ranks of the communicator");
}

}  // namespace

template <class T>
TileMatrix<T>::TileMatrix(const views::TileDistribution& distribution, TilePart part, int rank)
    : TileMatrix(distribution, part, rank, nullptr) {}

template <class T>
TileMatrix<T>::TileMatrix(const comm::Communicator& comm, const views::TileDistribution& distribution, TilePart part)
    : TileMatrix(distribution, part, checked(comm, distribution).rank(), comm.shared_memory()) {}

template <class T>
TileMatrix<T>::TileMatrix(const views::TileDistribution& distribution, TilePart part, int rank,
                          std::shared_ptr<std::pmr::memory_resource> shared)
    : OwnedTiles("aloni::tasks::TileMatrix", distribution, part, rank, "have memory") {
  const Index per_line = static_cast<Index>(alignment / sizeof(T));
  for (const views::Tile& t : distribution.tiles_of(rank)) {
    offsets_.push_back(elements_);
    if (has(t)) elements_ += ceil_div(distribution.elements(t), per_line) * per_line;
  }
  const auto size = static_cast<std::size_t>(bytes());
  const std::size_t aligned = array_alignment(size, alignment);
  const bool is_shared = shared != nullptr;
  if (!is_shared) shared = {std::shared_ptr<void>(), array_memory()};
  void* const elements = shared->allocate(size, aligned);
  data_ = {static_cast<T*>(elements), Free{std::move(shared), size, aligned}};
  std::fill_n(data_.get(), elements_, T(0));
  if (is_shared && aligned == huge_page_bytes) collapse_into_huge_pages(data_.get(), size);
}

template <class T>
void TileMatrix<T>::copy_from(const T* matrix, Index stride) {
  for_each_block([&](const views::Tile& t, Index first_row, Index first_column, Index rows, Index columns) {
    for (Index j = 0; j < columns; ++j)
      std::copy_n(matrix + (first_column + j) * stride + first_row, rows, tile(t) + j * rows);
  });
}

template <class T>
void TileMatrix<T>::copy_from(const TileMatrix& other) {
  check_equal("aloni::tasks::TileMatrix::copy_from", "other", other);
  std::copy_n(other.data_.get(), elements_, data_.get());
}

template <class T>
void TileMatrix<T>::copy_to(T* matrix, Index stride) const {
  for_each_block([&](const views::Tile& t, Index first_row, Index first_column, Index rows, Index columns) {
    for (Index j = 0; j < columns; ++j)
      std::copy_n(tile(t) + j * rows, rows, matrix + (first_column + j) * stride + first_row);
  });
}

#define INSTANTIATE(T) template class TileMatrix<T>;
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks
