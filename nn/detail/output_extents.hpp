#pragma once
// Output extents of each operation, with the checks of its members. Private to nn/operation.cpp.
#include <aloni/nn/operation.hpp>

#include <string>

namespace aloni::nn::detail {

/// The largest number of elements of a tensor: 2^62. Throws InvalidArgument for larger extents.
void check_size(const std::string& argument, const views::Extents& extents);

/// Throws InvalidArgument that names the layer; `member` may be empty.
[[noreturn]] void refuse(const LayerInputs& inputs, const std::string& member, const std::string& value,
                         const std::string& expectation);

/// The stencil of windows with a stride.
halo::Stencil stencil_of(const Window& window);

/// Extents of the weights of a convolution, as in ParameterDescription.
views::Extents weight_extents(const Convolution& op, Index channels);
views::Extents weight_extents(const TransposedConvolution& op, Index channels);

views::Extents output_extents(const LayerInputs& inputs, const Convolution& op);
views::Extents output_extents(const LayerInputs& inputs, const TransposedConvolution& op);
views::Extents output_extents(const LayerInputs& inputs, const Pooling& op);
views::Extents output_extents(const LayerInputs& inputs, const BatchNorm& op);
views::Extents output_extents(const LayerInputs& inputs, const GroupNorm& op);
views::Extents output_extents(const LayerInputs& inputs, const LayerNorm& op);
views::Extents output_extents(const LayerInputs& inputs, const LeakyRelu& op);
views::Extents output_extents(const LayerInputs& inputs, const Dropout& op);
views::Extents output_extents(const LayerInputs& inputs, const Flatten& op);
views::Extents output_extents(const LayerInputs& inputs, const Dense& op);
views::Extents output_extents(const LayerInputs& inputs, const GlobalAveragePooling& op);
views::Extents output_extents(const LayerInputs& inputs, const Add& op);
views::Extents output_extents(const LayerInputs& inputs, const Concatenate& op);
views::Extents output_extents(const LayerInputs& inputs, const AdaptivePooling& op);
views::Extents output_extents(const LayerInputs& inputs, const Upsampling& op);

}  // namespace aloni::nn::detail
