#pragma once
// Short vectors in the compilers' own notation (GCC, Clang), with which one template serves every instruction set.
//
// A kernel is a template of functions marked always_inline, called from small wrappers that carry the instruction set as an
// attribute; a wrapper is chosen at run time. Lambdas and functions that aren't inlined lose the attribute, so kernels use neither.

namespace aloni::nn::local::detail {

template <class T, int lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(lanes * sizeof(T)), aligned(alignof(T)), may_alias));
};
/// `lanes` values, at any address that suits one value.
template <class T, int lanes>
using Vector = typename VectorOf<T, lanes>::type;

}  // namespace aloni::nn::local::detail
