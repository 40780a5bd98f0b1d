#pragma once
// A network as plain data: a directed acyclic graph of layers. Each layer is listed after its inputs.
//
//   NetworkDescription net{.spatial_rank = 2, .input = views::make_extents(1, {28, 28}, 1),
//                          .layers = {{"conv1", Convolution{6, square_window(2, 5, 1, 2)}, {"input"}},
//                                     {"relu1", Relu{}, {"conv1"}}, …},
//                          .loss = Loss::softmax_cross_entropy};
//   auto shapes = infer_extents(net, 64);   // throws InvalidArgument that names the layer with the error
#include <aloni/nn/layer.hpp>
#include <aloni/views/extents.hpp>

#include <string>
#include <vector>

namespace aloni::nn {

/// The loss: one number computed from the last layer's output, for the whole mini-batch.
/// * softmax_cross_entropy: the output is N,1,1,1,classes, and each sample has a label. The mean is over samples.
/// * binary_cross_entropy: each element of the output is a logit with a target in [0,1]. The mean is over elements.
/// * mean_squared_error: each element y of the output has a target t. The mean of (y - t)² is over elements.
/// * pixel_cross_entropy: the channels of a pixel are the logits of its classes, at least two. Each pixel has a label.
///   The mean is over pixels. The last layer does not split channels, as for softmax_cross_entropy (nn/strategy.hpp).
/// * dice: each element of the output is a logit with a target t in [0,1]. With p = sigmoid(logit) the loss is
///   1 - 2 sum(p t) / (sum(p²) + sum(t²)), or 0 if the denominator is 0. The sums are over all elements of the
///   mini-batch. So the loss is not a mean over samples.
///   Source: Milletari, Navab and Ahmadi, "V-Net: fully convolutional neural networks for volumetric medical image
///   segmentation", 3DV 2016.
///
/// Correct predictions are
/// * samples or pixels whose largest logit has the label (softmax_cross_entropy, pixel_cross_entropy);
/// * elements with (logit > 0) = (t > 1/2) (binary_cross_entropy, dice);
/// * none: their number is 0 (mean_squared_error).
enum class Loss { softmax_cross_entropy, binary_cross_entropy, mean_squared_error, pixel_cross_entropy, dice };
/// "softmax_cross_entropy", …
const char* name(Loss loss);

/// The values with which a loss compares the output: an integer label for each sample or for each pixel, or a target
/// for each element.
enum class LossTargets { sample_labels, pixel_labels, elements };
LossTargets targets_of(Loss loss);

struct NetworkDescription {
  int spatial_rank = 2;
  views::Extents input;  ///< one sample (sample extent 1)
  std::vector<LayerDescription> layers;
  Loss loss = Loss::softmax_cross_entropy;
  /// Of softmax_cross_entropy and pixel_cross_entropy, in [0, 1): label smoothing as torch.nn.CrossEntropyLoss. With C
  /// classes the wanted probability of the label is 1 - s + s/C, and the wanted probability of each other class s/C.
  /// Evaluation has the same loss. Source: Szegedy et al., Rethinking the inception architecture for computer vision,
  /// 2016, section 7.
  double label_smoothing = 0;
};

/// Position of a layer in `layers`; -1 for "input". Throws InvalidArgument for an unknown name.
int find_layer(const NetworkDescription& network, const std::string& name);

/// Output extents of every layer for a mini-batch, in the order of `layers`. Checks the whole description: names,
/// order, number of inputs, windows, spatial rank, and that the last layer suits the loss.
/// Throws InvalidArgument naming the layer (equal on all ranks).
std::vector<views::Extents> infer_extents(const NetworkDescription& network, Index samples);

/// One learned tensor. Its extents are
/// * F,KD,KH,KW,C/groups for the weight of a convolution, C,KD,KH,KW,F/groups for a transposed one;
/// * F,1,1,1,C for the weight of a dense layer;
/// * 1,1,1,1,F for vectors.
struct ParameterDescription {
  std::string name;  ///< "conv1.weight", "conv1.bias", "bn1.gamma", "bn1.beta"
  int layer = 0;     ///< position in NetworkDescription::layers
  views::Extents extents;
  Index fan_in = 1;  ///< inputs per output; initial values are uniform in ±1/sqrt(fan_in)
};

/// All learned tensors in the order of layers, weight before bias, gamma before beta.
std::vector<ParameterDescription> parameters_of(const NetworkDescription& network);
/// Elements of all of them.
Index count_parameters(const NetworkDescription& network);

}  // namespace aloni::nn
