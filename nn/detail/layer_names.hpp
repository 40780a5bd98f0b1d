#pragma once
// The names of the layers of a network, and of them in error texts.
#include <aloni/nn/network_description.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn::detail {

/// In the order of the layers.
std::vector<std::string> layer_names(const NetworkDescription& network);

/// "a layer of the network (conv1, conv2); did you mean conv1?": the expectation for a name that no layer has.
std::string layer_expected(const NetworkDescription& network, std::string_view name);

}  // namespace aloni::nn::detail
