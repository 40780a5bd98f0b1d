#pragma once
// The models of nn/models.hpp, one function each. Private to nn/models.cpp and nn/models/.
#include <aloni/nn/models.hpp>

namespace aloni::nn::models {

NetworkDescription lenet5(const ModelOptions& options);
NetworkDescription vgg16(const ModelOptions& options);
NetworkDescription resnet18(const ModelOptions& options);
NetworkDescription resnet50(const ModelOptions& options);
NetworkDescription resnet152(const ModelOptions& options);
NetworkDescription densenet121(const ModelOptions& options);
NetworkDescription mesh1k(const ModelOptions& options);
NetworkDescription mesh2k(const ModelOptions& options);
NetworkDescription unet2d(const ModelOptions& options);
NetworkDescription unet3d(const ModelOptions& options);
NetworkDescription cosmoflow(const ModelOptions& options);

}  // namespace aloni::nn::models
