#pragma once
// The activation types for which layers and networks are compiled, each with the execution space that computes it.
// INSTANTIATE(T, Exec) is a macro of the including file, undefined again there.
#include <aloni/nn/local/detail/activations.hpp>
#include <aloni/nn/local/local_types.hpp>

#define ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)                                                                   \
  INSTANTIATE(float, ::aloni::nn::execution_space_t<float>)                                                          \
  ALONI_WITH_DOUBLE(INSTANTIATE(double, ::aloni::nn::execution_space_t<double>))                                     \
  ALONI_WITH_BFLOAT16(INSTANTIATE(::aloni::comm::bfloat16, ::aloni::nn::execution_space_t<::aloni::comm::bfloat16>)) \
  ALONI_WITH_FLOAT16(INSTANTIATE(::aloni::comm::float16, ::aloni::nn::execution_space_t<::aloni::comm::float16>))
