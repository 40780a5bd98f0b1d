#pragma once
// The activation types for which layers and networks are compiled, each with the execution space that computes it.
// INSTANTIATE(T, Exec) is a macro of the including file, undefined again there.
#include <aloni/nn/local/local_types.hpp>

#define ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)                                              \
  INSTANTIATE(float, ::aloni::nn::execution_space_t<float>)                                     \
  INSTANTIATE(double, ::aloni::nn::execution_space_t<double>)                                   \
  INSTANTIATE(::aloni::comm::bfloat16, ::aloni::nn::execution_space_t<::aloni::comm::bfloat16>) \
  INSTANTIATE(::aloni::comm::float16, ::aloni::nn::execution_space_t<::aloni::comm::float16>)
