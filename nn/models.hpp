#pragma once
// Networks by name, as descriptions.
//
//   const NetworkDescription mesh = make_model("mesh1k");                              // defaults
//   const NetworkDescription small = make_model("resnet18", {.input = Extents{{1, 1, 32, 32, 3}}});   // 10 classes
//
// A model has no dropout, and ReLU where its publication has leaky ReLU. Errors of inputs that are too small come
// from infer_extents() and name the first layer that does not fit.
#include <aloni/nn/network_description.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

struct ModelOptions {
  std::optional<views::Extents> input = {};  ///< one sample; the model's default if absent
  /// Number of outputs of the last layer: classes, values of a regression, or channels of each pixel. The model's
  /// default if absent.
  std::optional<Index> classes = {};
};

/// LeNet-5 (LeCun et al. 1998, section II.B), with ReLU and max pooling as is usual today. Layers: conv1 5x5x6 pad 2,
/// pool 2x2, conv2 5x5x16, pool 2x2, dense 120, 84, classes. It has 61,706 parameters for 28x28x1 and 10 classes.
NetworkDescription lenet5(const views::Extents& image, Index classes);

/// model           default input    outputs   parameters   loss                        publication
/// lenet5          28² × 1          10            61,706   softmax cross-entropy       LeCun et al. 1998
/// vgg16           224² × 3         1,000    138,357,544   softmax cross-entropy       Simonyan, Zisserman 2015
/// resnet18        224² × 3         1,000     11,689,512   softmax cross-entropy       He et al. 2016
/// resnet50        224² × 3         1,000     25,557,032   softmax cross-entropy       He et al. 2016
/// resnet152       224² × 3         1,000     60,192,808   softmax cross-entropy       He et al. 2016
/// densenet121     224² × 3         1,000      7,978,856   softmax cross-entropy       Huang et al. 2017
/// mesh1k          1024² × 18       1          7,843,521   binary cross-entropy        spatial-parallel-cnn, VI
/// mesh2k          2048² × 18       1         13,396,545   binary cross-entropy        spatial-parallel-cnn, VI
/// unet2d          512² × 1         1         31,036,481   binary cross-entropy        Ronneberger et al. 2015
/// unet3d          128³ × 1         1         19,071,329   binary cross-entropy        Çiçek et al. 2016
/// cosmoflow       128³ × 1         4          9,437,348   mean squared error          Mathuriya et al. 2018
///
/// vgg16 has no batch normalisation. The stride of a bottleneck of resnet50 and resnet152 is in its 3×3 convolution.
/// For images with at most 64 rows and 64 columns, the ResNets and densenet121 begin with a 3×3 convolution and no
/// pooling. They have 10 classes by default.
/// mesh1k and mesh2k: six blocks of 3 or 5 convolutions, each with batch normalisation and ReLU, and filters 128, 160,
/// 192, 256, 384, 128. The first convolution is 5×5, all others are 3×3. Each block begins with stride 2. A 1×1
/// convolution predicts one value for each of its pixels.
/// unet2d and unet3d pad their convolutions, normalise batches, up-sample with transposed convolutions, and keep the
/// extents of the input. These must be divisible by 16 (unet2d) or 8 (unet3d).
/// cosmoflow has the kernels and poolings of Oyama et al. 2021 (seven 3×3×3 convolutions, three dense layers). From 256
/// and from 512 voxels per side it has one more pooling. Its targets are four values of similar scale.
/// Throws InvalidArgument with the list of known names.
NetworkDescription make_model(const std::string& name, const ModelOptions& options = {});
NetworkDescription make_model(const std::string& name, const views::Extents& image, Index classes);
std::vector<std::string> model_names();

}  // namespace aloni::nn
