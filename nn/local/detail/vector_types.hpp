#pragma once
// Short vectors in the notation of GCC and Clang. With them one template serves every instruction set.
//
// A kernel consists of templates marked always_inline. Small wrappers with the instruction set as an attribute call it,
// and one wrapper is chosen at run time. Lambdas and functions that are not inlined lose the attribute, so kernels use
// neither.

namespace aloni::nn::local::detail {

template <class T, int lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(lanes * sizeof(T)), aligned(alignof(T)), may_alias));
};
/// `lanes` values, with the alignment of one value.
template <class T, int lanes>
using Vector = typename VectorOf<T, lanes>::type;

}  // namespace aloni::nn::local::detail
