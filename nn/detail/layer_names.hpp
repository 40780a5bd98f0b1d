#pragma once
// Names of layers in error texts.
#include <aloni/nn/network_description.hpp>

#include <string>
#include <string_view>

namespace aloni::nn::detail {

/// "a layer of the network (conv1, conv2); did you mean conv1?": the expectation for a name that no layer has.
std::string layer_expected(const NetworkDescription& network, std::string_view name);

}  // namespace aloni::nn::detail
