#pragma once
// A network as plain data: a directed acyclic graph of layers, listed so that each layer's inputs come before it.
//
//   NetworkDescription net{.spatial_rank = 2, .input = views::make_extents(1, {28, 28}, 1),
//                          .layers = {{"conv1", Convolution{6, square_window(2, 5, 1, 2)}, {"input"}},
//                                     {"relu1", Relu{}, {"conv1"}}, …},
//                          .loss = Loss::softmax_cross_entropy};
//   auto shapes = infer_extents(net, 64);   // throws InvalidArgument naming the layer when something doesn't fit
#include <aloni/nn/layer.hpp>
#include <aloni/views/extents.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

/// How the output of the last layer becomes one number, the mean over the mini-batch.
/// softmax_cross_entropy: the output is N,1,1,1,classes and each sample has a label.
/// binary_cross_entropy: every element of the output is a logit and has a target in [0,1]; the mean is over elements.
enum class Loss { softmax_cross_entropy, binary_cross_entropy };

struct NetworkDescription {
  int spatial_rank = 2;
  views::Extents input;  ///< one sample (sample extent 1)
  std::vector<LayerDescription> layers;
  Loss loss = Loss::softmax_cross_entropy;
};

/// Position of a layer in `layers`; -1 for "input". Throws InvalidArgument for an unknown name.
int find_layer(const NetworkDescription& network, const std::string& name);

/// Extents of every layer's output for a mini-batch, in the order of `layers`. Checks the whole description: names, order,
/// number of inputs, windows that fit, spatial rank, and that the last layer suits the loss.
/// Throws InvalidArgument naming the layer (equal on all ranks).
std::vector<views::Extents> infer_extents(const NetworkDescription& network, Index samples);

/// One learned tensor. Extents of a convolution's weight: F,KD,KH,KW,C/groups; of a transposed one's: C,KD,KH,KW,F/groups; of a dense weight: F,1,1,1,C; of vectors 1,1,1,1,F.
struct ParameterDescription {
  std::string name;  ///< "conv1.weight", "conv1.bias", "bn1.gamma", "bn1.beta"
  int layer = 0;     ///< position in NetworkDescription::layers
  views::Extents extents;
  Index fan_in = 1;  ///< inputs per output: bound of the initial uniform distribution is 1/sqrt(fan_in)
};

/// All learned tensors in the order of layers, weight before bias, gamma before beta.
std::vector<ParameterDescription> parameters_of(const NetworkDescription& network);

}  // namespace aloni::nn
