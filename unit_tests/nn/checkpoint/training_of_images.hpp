#pragma once
// A small network with batch normalisation and dropout, and images for it.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/trainer.hpp>

#include <cstdint>
#include <string>
#include <support/shared_folder.hpp>
#include <vector>

namespace aloni::nn::test {

using aloni::test::SharedFolder;

inline NetworkDescription small_net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 6}, 2);
  net.loss = Loss::softmax_cross_entropy;
  net.layers = {{"conv1", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"norm", BatchNorm{}, {"conv1"}},
                {"relu", Relu{}, {"norm"}},
                {"drop", Dropout{0.2}, {"relu"}},
                {"conv2", Convolution{6, square_window(2, 3, 2, 1)}, {"drop"}},
                {"flatten", Flatten{}, {"conv2"}},
                {"fc", Dense{7}, {"flatten"}}};
  return net;
}

inline LabelledImages noise(Index count) {
  LabelledImages set;
  set.image = small_net().input;
  set.classes = 7;
  set.pixels.resize(static_cast<std::size_t>(count * set.image.size()));
  std::uint32_t state = 12345;
  for (auto& pixel : set.pixels) pixel = static_cast<std::uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  for (Index i = 0; i < count; ++i) set.labels.push_back(static_cast<std::uint8_t>(i % 7));
  return set;
}

/// On 38 images: an epoch has four mini-batches of 8, and one of 6.
inline TrainReport train_small_net(const comm::Communicator& comm, const std::string& split,
                                   const TrainOptions& options) {
  return train<double>(comm, small_net(), Strategy::uniform(LayerSplit::parse(split)), noise(38), noise(9), options);
}

/// The splits for exactly this number of ranks.
inline std::vector<std::string> small_splits(int ranks) {
  std::vector<std::string> some;
  for (const char* text : {"1", "n2", "h2", "c2", "f2", "n3", "h2w2", "c2f2", "n2f2"})
    if (LayerSplit::parse(text).size() == ranks) some.emplace_back(text);
  return some;
}

}  // namespace aloni::nn::test
