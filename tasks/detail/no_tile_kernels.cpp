// In place of tile_kernels.cpp in builds without aloni_ENABLE_LAPACK.
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/instantiate.hpp>
#include <aloni/tasks/detail/tile_kernels.hpp>

namespace aloni::tasks::detail {

void check_kernels(const char* operation) {
  throw Unsupported(operation, "aloni_ENABLE_LAPACK", "OFF", "a build with aloni_ENABLE_LAPACK=ON");
}

template <class T>
void potrf(const char* operation, TileBlock<T>, const views::Tile&, Index) {
  check_kernels(operation);
}
template <class T>
void getrf(const char* operation, TileBlock<T>, const views::Tile&, Index) {
  check_kernels(operation);
}
template <class T>
void trsm(char, char, char, char, ConstBlock<T>, TileBlock<T>) {
  check_kernels("aloni::tasks::trsm");
}
template <class T>
void subtract_square(ConstBlock<T>, TileBlock<T>) {
  check_kernels("aloni::tasks::syrk");
}
template <class T>
void subtract_product(char, ConstBlock<T>, char, ConstBlock<T>, TileBlock<T>) {
  check_kernels("aloni::tasks::gemm");
}

#define INSTANTIATE(T)                                                        \
  template void potrf(const char*, TileBlock<T>, const views::Tile&, Index);  \
  template void getrf(const char*, TileBlock<T>, const views::Tile&, Index);  \
  template void trsm<T>(char, char, char, char, ConstBlock<T>, TileBlock<T>); \
  template void subtract_square<T>(ConstBlock<T>, TileBlock<T>);              \
  template void subtract_product<T>(char, ConstBlock<T>, char, ConstBlock<T>, TileBlock<T>);
ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::tasks::detail
