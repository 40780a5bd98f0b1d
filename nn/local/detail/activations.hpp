#pragma once
// The types of activations for which this build compiles networks (nn/compiled_activations.hpp), with the execution
// spaces of views/detail/instantiate.hpp. The including file defines the macro INSTANTIATE(T, Exec), and undefines it
// afterwards.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/nn/compiled_activations.hpp>
#include <aloni/views/detail/instantiate.hpp>

/// For the types of 16 bits.
#define ALONI_INSTANTIATE_16_BIT(INSTANTIATE)                                         \
  ALONI_WITH_BFLOAT16(ALONI_INSTANTIATE_SPACES(INSTANTIATE, ::aloni::comm::bfloat16)) \
  ALONI_WITH_FLOAT16(ALONI_INSTANTIATE_SPACES(INSTANTIATE, ::aloni::comm::float16))
/// For the types of parameters.
#define ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE) \
  ALONI_INSTANTIATE_SPACES(INSTANTIATE, float)    \
  ALONI_WITH_DOUBLE(ALONI_INSTANTIATE_SPACES(INSTANTIATE, double))
/// For all types of activations.
#define ALONI_INSTANTIATE_LAYERS(INSTANTIATE) \
  ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)   \
  ALONI_INSTANTIATE_16_BIT(INSTANTIATE)
