#pragma once
// Networks by name.
#include <aloni/nn/network_description.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

/// LeNet-5 (LeCun et al. 1998, section II.B), with ReLU and max pooling as is usual today: conv1 5x5x6 pad 2, pool
/// 2x2, conv2 5x5x16, pool 2x2, dense 120, 84, classes. 61,706 parameters for 28x28x1 and 10 classes.
NetworkDescription lenet5(const views::Extents& image, Index classes);

/// Throws InvalidArgument with the list of known names.
NetworkDescription make_model(const std::string& name, const views::Extents& image, Index classes);
std::vector<std::string> model_names();

}  // namespace aloni::nn
